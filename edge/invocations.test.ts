import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import type { FunctionCall, FunctionResult, Functions } from "#core/functions.ts";
import { parseEdgeId } from "#core/ids.ts";
import { Invocations } from "./invocations.ts";

const RESULT: FunctionResult = {
  ...{ status: "ok", message: undefined, compile: undefined, run: undefined, files: [], tests: [] },
};
const CALL: FunctionCall = {
  project: "p",
  runtime: { name: "sh", layers: [], env: {}, source: "a", compile: undefined, run: ["a"], warm: undefined },
  ...{ code: undefined, command: ["a"], files: [], args: [], env: {}, outputs: [], tests: [] },
  ...{ stopEarly: false, reuse: "cells", stdin: new Uint8Array() },
  limits: { compileMs: 1, runMs: 1, memoryMiB: 1, outputBytes: 1, pids: 1 },
};

test("what started calls bring has a bound: a thousand of the largest would take the node's memory", async () => {
  const ends: (() => void)[] = [];
  const functions: Functions = {
    invoke: () => new Promise((resolve) => ends.push(() => resolve(RESULT))),
    load: { running: 0, queued: 0 },
    containers: new Set(),
    shrink: async () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
  };
  using invocations = new Invocations(functions, { clock: new ManualClock(), edge: parseEdgeId("n1") });
  const large = { ...CALL, stdin: new Uint8Array(100 * 1024 * 1024) };
  const first = invocations.start(large);
  invocations.start(large);
  assert.throws(() => invocations.start(large), { kind: "Overloaded" });
  invocations.start(CALL);
  ends[0]?.();
  await invocations.wait(first, { project: "p", waitMs: 1_000 }, new AbortController().signal);
  invocations.start(large);
});
