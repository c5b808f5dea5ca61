import assert from "node:assert/strict";
import { test } from "node:test";
import type { FunctionCall, FunctionRuntime } from "#core/functions.ts";
import { mostBytesOf } from "./room.ts";

const MIB = 1024 * 1024;
const limits = { compileMs: 1, runMs: 1, memoryMiB: 8, outputBytes: MIB, pids: 1 };
const script = { compile: undefined } as FunctionRuntime;
const call = { code: new Uint8Array(), limits, outputs: [], runtime: script, tests: [] };
const tests = (count: number) => Array.from({ length: count }, () => ({}) as FunctionCall["tests"][number]);

test("a call may have both streams in memory, its files, and what a compiler says", () => {
  assert.equal(mostBytesOf(call), 2 * MIB);
  assert.equal(mostBytesOf({ ...call, outputs: ["a"] }), 18 * MIB);
  const compile = { argv: ["cc"], outputs: ["main"], memoryMiB: 8 };
  assert.equal(mostBytesOf({ ...call, runtime: { ...script, compile } }), 2 * MIB + 128 * 1024);
});

test("tests have their share of what is returned, and what four of them print", () => {
  assert.equal(mostBytesOf({ ...call, tests: tests(2) }), 8 * MIB);
  assert.equal(mostBytesOf({ ...call, tests: tests(10_000) }), 72 * MIB);
});
