import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import type { FunctionCall, Functions, HeldResult } from "#core/functions.ts";
import type { EdgeId } from "#core/ids.ts";
import { Invocations } from "./invocations.ts";

const EDGE = "e1" as EdgeId;
const CALL = { project: "p" } as FunctionCall;

/** Calls that a test ends by hand. */
interface Running {
  readonly end: PromiseWithResolvers<HeldResult>;
  readonly signal: AbortSignal;
}

let running: Running[];
let disposed: number;
let clock: ManualClock;
let invocations: Invocations;
beforeEach(() => {
  running = [];
  disposed = 0;
  clock = new ManualClock();
  const functions: Pick<Functions, "invoke"> = {
    invoke(_call, signal) {
      const end = Promise.withResolvers<HeldResult>();
      running.push({ end, signal });
      return end.promise;
    },
  };
  invocations = new Invocations(functions as Functions, { clock, edge: EDGE });
});

const never = new AbortController().signal;
const result = (stdoutBytes = 0): HeldResult => ({
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
  [Symbol.dispose]: () => {
    disposed += 1;
  },
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

test("a result that waits here is not held by the functions, whoever takes it", async () => {
  const id = invocations.start(CALL);
  running[0]?.end.resolve(result());
  (await wait(id))?.[Symbol.dispose]();
  assert.equal((await wait(id))?.status, "ok");
  assert.equal(disposed, 1);
});

test("of results that are too large together those of the project give way that has most", async () => {
  const small = invocations.start({ ...CALL, project: "q" });
  running[0]?.end.resolve(result(20 * 1024 * 1024));
  await settled();
  const large = Array.from({ length: 3 }, () => invocations.start(CALL));
  for (const index of [3, 2, 1]) {
    running[index]?.end.resolve(result(100 * 1024 * 1024));
    await settled();
  }
  assert.equal((await wait(small, "q"))?.status, "ok");
  const [last, middle, first] = large;
  assert.ok(first !== undefined && middle !== undefined && last !== undefined);
  // The one that ended first went, not the one that was started first.
  await assert.rejects(wait(first), { kind: "NotFound" });
  for (const id of [middle, last]) assert.equal((await wait(id))?.status, "ok");
});

test("a project has a thousand calls at once, others go on; the end of the node gives all of them up", () => {
  for (let call = 0; call < 1_000; call += 1) invocations.start(CALL);
  const refused = { kind: "Overloaded", details: { retryAfterMs: 10_000 } };
  assert.throws(() => invocations.start(CALL), refused);
  for (let other = 0; other < 7_000; other += 1) invocations.start({ ...CALL, project: `q${other % 7}` });
  assert.throws(() => invocations.start({ ...CALL, project: "r" }), refused);
  invocations[Symbol.dispose]();
  assert.ok(running.every(({ signal }) => signal.aborted));
});

test("a project's calls bring a quarter of what all may bring, or one call more; it is free when they end", async () => {
  const bringing = (mib: number, project = "p") => ({ ...CALL, project, stdin: new Uint8Array(mib * 1024 * 1024) });
  invocations.start(bringing(60));
  assert.throws(() => invocations.start(bringing(5)), { kind: "Overloaded" });
  invocations.start(bringing(100, "q"));
  assert.throws(() => invocations.start(bringing(100, "r")), { kind: "Overloaded" });
  running[0]?.end.reject(new Error("lost"));
  await settled();
  invocations.start(bringing(5));
  invocations.start(bringing(100, "r"));
});
