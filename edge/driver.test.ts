import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { FakeMoment } from "#backends/fake/config.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId, type SandboxId } from "#core/ids.ts";
import { never, Rig, run, until } from "./test-support/rig.ts";

const IDS = [1, 2, 3].map(() => newSandboxId(parseEdgeId("fake")));
const target = fc.constantFrom(...IDS);

const MOMENTS: readonly FakeMoment[] = [
  "check",
  "create",
  "created",
  "connect",
  "kill",
  "destroy",
  "usage",
  "pause",
  "resume",
];

const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("create" as const), id: target }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("destroy" as const), id: target }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("run" as const), id: target }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("pause" as const), id: target }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("resume" as const), id: target }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("die" as const), id: target }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("break" as const), id: target }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("crash" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("sabotage" as const),
      moment: fc.constantFrom<FakeMoment>(...MOMENTS),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("wait" as const) }) },
);

/** What an operation may end with, whatever happened around it. */
const EXPECTED = new Set(["NotFound", "FailedPrecondition", "SandboxLost", "Unavailable", "Cancelled", "Internal"]);

/** No sequence takes more than a fraction of this: one that does waits for what never comes. */
const HANG_MS = 20_000;

test("random verbs, deaths, failures and crashes end in a state that agrees with the node", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const sabotage = new Map<FakeMoment, number>();
      const script = (moment: FakeMoment) => {
        const left = sabotage.get(moment) ?? 0;
        if (left === 0) return;
        sabotage.set(moment, left - 1);
        throw new SandboxError("Internal", `sabotage at ${moment}`);
      };
      await using rig = await Rig.open({ script });
      const pending: Promise<unknown>[] = [];
      const tolerate = (work: Promise<unknown>) => {
        pending.push(
          work.catch((error: unknown) => {
            const { kind } = asSandboxError(error);
            assert.ok(EXPECTED.has(kind), `${kind}: ${error instanceof Error ? error.stack : error}`);
          }),
        );
      };
      for (const one of steps) {
        if (one.kind === "create") tolerate(rig.edge.create(aFakeSpec({ id: one.id }), never));
        if (one.kind === "destroy") tolerate(rig.edge.destroy(one.id, never));
        if (one.kind === "run") tolerate(runAndCheck(rig, one.id));
        if (one.kind === "pause") tolerate(rig.edge.pause(one.id, never));
        if (one.kind === "resume") tolerate(rig.edge.resume(one.id, never));
        if (one.kind === "die") rig.host.sandboxes.get(one.id)?.die();
        if (one.kind === "break") rig.host.sandboxes.get(one.id)?.breakLinks();
        if (one.kind === "sabotage") sabotage.set(one.moment, 1);
        if (one.kind === "crash") {
          sabotage.clear();
          await rig.crash();
        }
        if (one.kind === "wait") await new Promise(setImmediate);
      }
      sabotage.clear();
      await finish(rig, pending);
      await check(rig);
    }),
    { numRuns: 120, timeout: HANG_MS },
  );
});

test("a create of an id under removal tries the removal again when it failed", { timeout: HANG_MS }, async () => {
  const failures: FakeMoment[] = ["created", "destroy"];
  const script = (moment: FakeMoment) => {
    const at = failures.indexOf(moment);
    if (at >= 0) throw new SandboxError("Internal", `sabotage at ${failures.splice(at, 1)}`);
  };
  await using rig = await Rig.open({ script });
  const spec = aFakeSpec();
  await assert.rejects(rig.edge.create(spec, never), { kind: "Internal" });
  assert.equal((await rig.edge.create(spec, never)).state, "ready");
});

test("a create of an id under removal ends when the edge stops", { timeout: HANG_MS }, async () => {
  await using rig = await Rig.open({});
  const spec = aFakeSpec();
  await rig.edge.create(spec, never);
  const removed = rig.edge.destroy(spec.id, never);
  const again = rig.edge.create(spec, never);
  await rig.crash();
  await Promise.allSettled([removed, again]);
});

async function runAndCheck(rig: Rig, id: SandboxId): Promise<void> {
  const { command, output } = await run(rig.edge, id, ["echo", "x"]);
  if (command.status?.cause === "exited") assert.equal(Buffer.from(output?.stdout ?? []).toString(), "x\n");
}

/** Whoever waits for a command of a sandbox that was paused meanwhile waits until somebody resumes it. */
async function finish(rig: Rig, pending: readonly Promise<unknown>[]): Promise<void> {
  let left = pending.length;
  const over = () => {
    left -= 1;
  };
  for (const one of pending) one.then(over, over);
  do {
    await settle(rig);
    await new Promise(setImmediate);
  } while (left > 0);
  await Promise.all(pending);
  await settle(rig);
}

/** Removals that failed are asked for again; losses are noticed. */
async function settle(rig: Rig): Promise<void> {
  for (const id of IDS) {
    await until(async () => {
      const info = (await rig.edge.list({}, never)).find(({ spec }) => spec.id === id);
      // That one has died meanwhile shows when it is to go on.
      if (info?.state === "paused") await rig.edge.resume(id, never).catch(() => undefined);
      if (info?.state === "destroying") await rig.edge.destroy(id, never).catch(() => undefined);
      return (
        info === undefined ||
        info.state === "failed" ||
        (info.state === "ready" && rig.host.sandboxes.get(id)?.alive === true)
      );
    });
  }
}

async function check(rig: Rig): Promise<void> {
  const known = await rig.edge.list({}, never);
  const ready = known.filter(({ state }) => state === "ready");
  const live = [...rig.host.sandboxes.values()].filter(({ alive }) => alive);
  assert.deepEqual(new Set(live.map(({ spec }) => spec.id)), new Set(ready.map(({ spec }) => spec.id)));
  assert.deepEqual(new Set(rig.host.sandboxes.keys()), new Set(known.map(({ spec }) => spec.id)));
  const { promised } = await rig.edge.info(never);
  assert.equal(promised.sandboxes, known.length);
  for (const { spec } of ready) assert.equal((await run(rig.edge, spec.id, ["true"])).command.status?.code, 0);
  for (const { spec } of known) await rig.edge.destroy(spec.id, never);
  assert.equal(rig.host.sandboxes.size, 0);
  assert.deepEqual((await rig.edge.info(never)).promised, { cpus: 0, memoryMiB: 0, sandboxes: 0 });
}
