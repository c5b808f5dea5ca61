import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import type { FunctionCall, FunctionResult, Functions } from "#core/functions.ts";
import type { EdgeId } from "#core/ids.ts";
import { Invocations } from "./invocations.ts";

const EDGE = "e1" as EdgeId;
const CALL = { project: "p" } as FunctionCall;

/** Calls that a test ends by hand. */
interface Running {
  readonly end: PromiseWithResolvers<FunctionResult>;
  readonly signal: AbortSignal;
}

let running: Running[];
let clock: ManualClock;
let invocations: Invocations;
beforeEach(() => {
  running = [];
  clock = new ManualClock();
  const functions: Pick<Functions, "invoke"> = {
    invoke(_call, signal) {
      const end = Promise.withResolvers<FunctionResult>();
      running.push({ end, signal });
      return end.promise;
    },
  };
  invocations = new Invocations(functions as Functions, { clock, edge: EDGE });
});

const never = new AbortController().signal;
const result = (stdoutBytes = 0): FunctionResult => ({
  status: "ok",
  message: undefined,
  compile: undefined,
  run: {
    exitCode: 0,
    signal: undefined,
    stdout: new Uint8Array(stdoutBytes),
    stderr: new Uint8Array(),
    outputCut: false,
    wallMs: 0,
    cpuMs: 0,
    peakMemoryBytes: 0,
  },
  files: [],
  tests: [],
});
const settled = () => new Promise(setImmediate);
const wait = (id: ReturnType<Invocations["start"]>, project = "p") =>
  invocations.wait(id, { project, waitMs: 1_000 }, never);

test("a question ends when the call does, or after its time, and may be asked again", async () => {
  const id = invocations.start(CALL);
  const first = wait(id);
  clock.advance(1_000);
  assert.equal(await first, undefined);
  const second = wait(id);
  running[0]?.end.resolve(result());
  assert.equal((await second)?.status, "ok");
  assert.equal((await wait(id))?.status, "ok");
});

test("a call of another project is unknown, to look at and to drop", async () => {
  const id = invocations.start(CALL);
  await assert.rejects(wait(id, "q"), { kind: "NotFound" });
  invocations.drop(id, "q");
  assert.equal(running[0]?.signal.aborted, false);
  invocations.drop(id, "p");
  assert.equal(running[0]?.signal.aborted, true);
  await assert.rejects(wait(id), { kind: "NotFound" });
});

test("a result is kept for ten minutes", async () => {
  const id = invocations.start(CALL);
  running[0]?.end.resolve(result());
  await settled();
  clock.advance(10 * 60_000 - 1);
  assert.equal((await wait(id))?.status, "ok");
  clock.advance(1);
  await assert.rejects(wait(id), { kind: "NotFound" });
});

test("the oldest results give way when all together are too large, never a call that runs", async () => {
  const ids = Array.from({ length: 4 }, () => invocations.start(CALL));
  for (const index of [1, 2, 3]) {
    running[index]?.end.resolve(result(100 * 1024 * 1024));
    await settled();
  }
  const [runs, oldest, ...kept] = ids;
  assert.ok(runs !== undefined && oldest !== undefined);
  await assert.rejects(wait(oldest), { kind: "NotFound" });
  for (const id of kept) assert.equal((await wait(id))?.status, "ok");
  running[0]?.end.resolve(result());
  assert.equal((await wait(runs))?.status, "ok");
});

test("a thousand calls at once are enough, and the end of the node gives all of them up", () => {
  for (let call = 0; call < 1_000; call += 1) invocations.start(CALL);
  assert.throws(() => invocations.start(CALL), { kind: "Overloaded", details: { retryAfterMs: 10_000 } });
  invocations[Symbol.dispose]();
  assert.ok(running.every(({ signal }) => signal.aborted));
});
