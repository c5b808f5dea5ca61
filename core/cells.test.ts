import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CellResultReader, encodeCellRequest } from "#core/cells.ts";

const LIMITS = { cpuMs: 1, wallMs: 2, memoryBytes: 3, outputBytes: 4, fileBytes: 5, pids: 6 };
const REQUEST = { argv: ["a", ""], env: { N: "v" }, files: [], input: new Uint8Array(), wanted: [], limits: LIMITS };

/** What is read of a call that may print and return so much. */
function readerOf(outputBytes = 1024): CellResultReader {
  const reader = new CellResultReader();
  reader.expect({ ...REQUEST, limits: { ...LIMITS, outputBytes } });
  return reader;
}

function part(type: number, body: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head[0] = type;
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body]);
}

function end(verdict: number, status: number): Buffer {
  const body = Buffer.alloc(36);
  body[0] = verdict;
  body[1] = 1;
  body.writeInt32LE(status, 4);
  body.writeBigUInt64LE(1_500n, 16);
  return part(5, body);
}

test("a request has its texts and files behind a head of fixed size", () => {
  const file = { name: "f", mode: 0o644, bytes: Buffer.from("xy") };
  const all = Buffer.concat(encodeCellRequest({ ...REQUEST, files: [file], input: Buffer.from("in") }));
  assert.equal(all.readBigUInt64LE(0), 1_000n);
  assert.deepEqual([all.readBigUInt64LE(40), all.readUInt32LE(52), all.readUInt32LE(56)], [2n, 1, 3]);
  assert.equal(all.subarray(72).toString("latin1"), "a\0\0N=v\0\xa4\x01\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0fxyin");
});

test("what no program could be given is refused", () => {
  assert.throws(() => encodeCellRequest({ ...REQUEST, argv: ["a\0b"] }), { kind: "InvalidArgument" });
  assert.throws(() => encodeCellRequest({ ...REQUEST, argv: ["a".repeat(1024 * 1024)] }), { kind: "InvalidArgument" });
});

test("a result is the same wherever its stream is cut", () => {
  const file = Buffer.concat([Buffer.from([0xa4, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]), Buffer.from("f")]);
  const gone = Buffer.concat([Buffer.alloc(4), Buffer.from([1, 0, 0, 0]), Buffer.alloc(8), Buffer.from("gone")]);
  const parts = [
    part(1, Buffer.from("out")),
    part(2, Buffer.from("err")),
    part(3, file),
    part(4, Buffer.from("xy")),
    part(3, gone),
    end(0, 3 << 8),
  ];
  const stream = Buffer.concat([...parts, part(7, Buffer.alloc(0)), part(1, Buffer.from("next")), end(0, 9)]);
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: stream.length })), (cuts) => {
      const reader = readerOf();
      const places = [0, ...cuts.sort((a, b) => a - b), stream.length];
      const news = places.slice(1).flatMap((to, index) => reader.push(stream.subarray(places[index], to)));
      assert.deepEqual(
        news.map(({ type }) => type),
        ["result", "ready", "result"],
      );
      const [result, next] = news.flatMap((each) => (each.type === "result" ? [each.result] : []));
      assert.deepEqual([next?.signal, String(next?.stdout), next?.files], [9, "next", []]);
      assert.deepEqual([result?.code, result?.verdict, result?.clean, result?.cpuMs], [3, "ended", true, 1.5]);
      assert.deepEqual([String(result?.stdout), String(result?.stderr), result?.missing], ["out", "err", ["gone"]]);
      assert.deepEqual(
        result?.files.map(({ name, bytes }) => [name, String(bytes)]),
        [["f", "xy"]],
      );
    }),
  );
});

test("what no keeper says is refused, and a refusal of it told", () => {
  const said =
    (...parts: Buffer[]) =>
    () =>
      readerOf().push(Buffer.concat(parts));
  assert.throws(said(part(9, Buffer.alloc(0))), { kind: "Internal" });
  assert.throws(said(end(99, 0)), { kind: "Internal" });
  assert.throws(said(Buffer.from([1, 0, 0, 0, 255, 255, 255, 255])), { kind: "Internal" });
  assert.throws(said(part(6, Buffer.from([28, 0, 0, 0]))), { kind: "SandboxLimit" });
});

test("a keeper that was taken over cannot say more than its call may print and return", () => {
  const outputBytes = 2 * 1024 * 1024;
  const reader = readerOf(outputBytes);
  const piece = part(1, Buffer.alloc(64 * 1024));
  const send = (bytes: number) => {
    for (let sent = 0; sent < bytes; sent += 64 * 1024) reader.push(piece);
  };
  send(2 * outputBytes);
  assert.throws(() => send(2 * outputBytes), { kind: "Internal", message: /more than its call/ });
});
