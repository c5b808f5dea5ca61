import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import type { SandboxUsage, Usage } from "#core/usage.ts";
import { never } from "#edge/test-support/rig.ts";
import { readUsage } from "#edge/usage.ts";

const NOTHING: Usage = {
  cpu: { totalMs: 0, userMs: 0, systemMs: 0, throttledMs: 0 },
  memory: { bytes: 0, peakBytes: 0, swapBytes: 0 },
  oomKills: 0,
  oomVictims: [],
  pids: 0,
  diskBytes: undefined,
  io: undefined,
  network: undefined,
};

function watched(clock = new ManualClock()) {
  const leaving = new AbortController();
  let samples = 0;
  const sample = async (): Promise<SandboxUsage> => ({
    ...NOTHING,
    id: newSandboxId(parseEdgeId("n")),
    atMs: ++samples,
    limits: { cpus: 1, memoryBytes: 1, swapBytes: 0, pids: 1, diskBytes: undefined },
    commands: { running: 0, recorded: 0 },
  });
  return { clock, leaving, taken: () => samples, host: { clock, signal: never, leaving: leaving.signal, sample } };
}

test("samples are taken when they are asked for, never ahead and never late ones twice", async () => {
  const { clock, host, taken } = watched();
  const reader = readUsage({ periodMs: 1000 }, host);
  assert.equal((await reader.next()).value?.atMs, 1);
  const second = reader.next();
  clock.advance(999);
  assert.equal(taken(), 1);
  clock.advance(60_000);
  assert.equal((await second).value?.atMs, 2);
  assert.equal(taken(), 2);
  await reader.return();
});

test("a stream ends when the sandbox is removed, and breaks when its node goes away", async () => {
  for (const kind of ["Cancelled", "Unavailable"] as const) {
    const { host, leaving } = watched();
    const reader = readUsage({ periodMs: 1000 }, host);
    await reader.next();
    const end = reader.next();
    leaving.abort(new SandboxError(kind, "on its way out"));
    if (kind === "Cancelled") assert.equal((await end).done, true);
    else await assert.rejects(end, { kind });
  }
});

test("a reader that gives up is let go at once", async () => {
  const { host } = watched();
  const leave = new AbortController();
  const reader = readUsage({ periodMs: 1000 }, { ...host, signal: leave.signal });
  await reader.next();
  const next = reader.next();
  leave.abort(new Error("left"));
  await assert.rejects(next, /left/);
});

test("periods that make no sense are refused", async () => {
  for (const periodMs of [0, -1, 99, Number.NaN]) {
    await assert.rejects(readUsage({ periodMs }, watched().host).next(), { kind: "InvalidArgument" });
  }
});
