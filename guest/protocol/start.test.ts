import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { TaskAction, TaskSpec } from "#core/guest.ts";
import { encodeStart } from "./start.ts";
import { EXEC_DEFAULTS, exec } from "./testing.ts";

function encode(action: TaskAction, rest: Partial<TaskSpec> = {}): Buffer {
  return encodeStart(7, { ...EXEC_DEFAULTS, ...rest, action });
}

function onTerminal(rows: number, cols: number): TaskAction {
  return { type: "exec", argv: [Buffer.from("a")], terminal: { rows, cols } };
}

/** Tags and values of a START frame. */
function fields(frame: Buffer): Map<number, Buffer> {
  const found = new Map<number, Buffer>();
  for (let at = 12; at < frame.length; ) {
    const length = frame.readUInt32LE(at + 4);
    found.set(frame.readUInt16LE(at), frame.subarray(at + 8, at + 8 + length));
    at += 8 + length;
  }
  return found;
}

describe("START", () => {
  test("a port is a number from 1 to 65535; waiting for none in particular has no field", () => {
    assert.deepEqual(fields(encode({ type: "connect", port: 65_535 }, { stdin: "pipe" })).get(15), Buffer.of(255, 255));
    assert.deepEqual(fields(encode({ type: "listeners", port: 1 })).get(15), Buffer.of(1, 0));
    assert.equal(fields(encode({ type: "listeners", port: undefined })).get(15), undefined);
    for (const port of [0, -1, 65_536, 1.5, Number.NaN]) {
      assert.throws(() => encode({ type: "connect", port }), { kind: "InvalidArgument" });
    }
  });

  test("carries texts with the NUL that ends them", () => {
    const frame = encode(exec("a", "", "b c"), {
      env: { A: "1", B: "" },
      user: "ann:dev",
      cwd: "/x",
      timeLimitMs: 2.5,
    });
    const found = fields(frame);
    assert.equal(frame.readUInt32LE(0), frame.length - 4);
    assert.equal(frame.readUInt32LE(8), 7);
    assert.deepEqual(
      [1, 2, 3, 4, 5, 7].map((tag) => found.get(tag)?.toString("latin1")),
      ["\x01", "ann:dev\0", "/x\0", "A=1\0B=\0", "\0", "a\0\0b c\0"],
    );
    assert.equal(found.get(6)?.readBigUInt64LE(), 3n);
  });

  test("carries the size of a terminal", () => {
    assert.deepEqual([...(fields(encode(onTerminal(24, 300))).get(13) ?? [])], [24, 0, 44, 1]);
  });

  test("a time limit below a millisecond is one, never none", () => {
    assert.equal(
      fields(encode(exec("a"), { timeLimitMs: 0.001 }))
        .get(6)
        ?.readBigUInt64LE(),
      1n,
    );
  });

  test("refuses as InvalidArgument what no process could be given", () => {
    const path = Buffer.from("/f");
    const wrong: readonly (() => Buffer)[] = [
      () => encode({ type: "exec", argv: [] }),
      () => encode(exec("")),
      () => encode(exec("a", "b\0c")),
      () => encode(exec("a"), { env: { "A=B": "" } }),
      () => encode(exec("a"), { env: { "": "x" } }),
      () => encode(exec("a"), { env: { A: "\0" } }),
      () => encode(exec("a"), { user: "x\0" }),
      () => encode(exec("a"), { cwd: "x".repeat(5000) }),
      () => encode(exec("a"), { timeLimitMs: 0 }),
      () => encode(exec("a"), { timeLimitMs: -1 }),
      () => encode(exec("a"), { timeLimitMs: Number.NaN }),
      () => encode({ type: "line", session: 1, text: Buffer.from("a\0b") }),
      () => encode({ type: "line", session: 1, text: Buffer.alloc(1024 * 1024 + 1, "x") }),
      () => encode(onTerminal(0, 80)),
      () => encode(onTerminal(24, 65_536)),
      () => encode({ type: "stat", path: Buffer.from("relative") }),
      () => encode({ type: "stat", path: Buffer.alloc(0) }),
      () => encode({ type: "read", path, offset: -1, length: undefined }),
      () => encode({ type: "read", path, offset: 0, length: 0.5 }),
      () => encode({ type: "mkdir", path, mode: 0o10000, parents: false }),
      () => encode({ type: "write", path, mode: -1, parents: false }, { stdin: "pipe" }),
    ];
    for (const make of wrong) assert.throws(make, { kind: "InvalidArgument" }, make.toString());
  });
});
