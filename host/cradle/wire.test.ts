import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type CradleRequest, encodeBlank, encodeCancel, encodeCreate, encodeDrop, ReplyReader } from "./wire.ts";

const REQUEST: CradleRequest = {
  id: "a",
  uidBase: 65_536,
  layers: ["/l"],
  upperDir: "/u",
  workDir: "/w",
  hostname: "h",
  hosts: "",
  resolvConf: "",
  socketPath: "/s",
  agentArgs: [],
  cgroups: [],
  shmBytes: 1,
};

function reply(type: number, tag: number, number: number, words = ""): Buffer {
  const text = Buffer.from(words);
  const bytes = Buffer.alloc(16 + text.length);
  bytes.writeUInt32LE(12 + text.length, 0);
  bytes.writeUInt16LE(type, 4);
  bytes.writeUInt32LE(tag, 8);
  bytes.writeUInt32LE(number, 12);
  text.copy(bytes, 16);
  return bytes;
}

describe("requests", () => {
  test("a frame carries its length, its type and its tag", () => {
    const frame = encodeCreate(7, REQUEST);
    assert.equal(frame.readUInt32LE(0), frame.length - 4);
    assert.equal(frame.readUInt16LE(4), 1);
    assert.equal(frame.readUInt32LE(8), 7);
    assert.deepEqual([...encodeCancel(9)], [8, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0]);
  });

  test("a blank's frame has what of the create's is known ahead", () => {
    const frame = encodeBlank(8, REQUEST);
    assert.deepEqual([frame.readUInt16LE(4), frame.readUInt32LE(8)], [3, 8]);
    assert.ok(encodeCreate(7, REQUEST).includes(frame.subarray(12)));
    assert.deepEqual([...encodeDrop(65_536)], [8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 0]);
  });

  test("each text ends with NUL, and a cgroup's writes follow it", () => {
    const frame = encodeCreate(1, {
      ...REQUEST,
      cgroups: [{ dir: "/c", writes: [["pids.max", "5"]], handOver: true }],
    }).toString("latin1");
    assert.ok(frame.includes("\x0b\0\x03\0/c\0\x0c\0\x0b\0pids.max\x005\0\x0d\0\0\0"));
  });

  test("text with a NUL is refused", () => {
    assert.throws(() => encodeCreate(1, { ...REQUEST, hostname: "a\0b" }), { kind: "InvalidArgument" });
  });

  test("what does not fit into a frame is refused", () => {
    assert.throws(() => encodeCreate(1, { ...REQUEST, hosts: "x".repeat(70_000) }), { kind: "TooLarge" });
    const half = "x".repeat(40_000);
    assert.throws(() => encodeCreate(1, { ...REQUEST, hosts: half, resolvConf: half }), { kind: "TooLarge" });
  });
});

describe("replies", () => {
  const stream = Buffer.concat([
    reply(64, 0, 1, "fd"),
    reply(65, 3, 1234),
    reply(66, 4, 2, "layer /x"),
    reply(67, 1234, 0x0100),
  ]);
  const decoded = [
    { type: "hello", protocol: 1, overlayMode: "fd" },
    { type: "created", tag: 3, pid: 1234 },
    { type: "failed", tag: 4, errno: 2, stage: "layer /x" },
    { type: "exit", pid: 1234, status: 256 },
  ];

  test("arrive whole wherever the stream is cut", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(stream.length), { maxLength: 8 }), (cuts) => {
        const reader = new ReplyReader();
        const edges = [0, ...cuts.toSorted((a, b) => a - b), stream.length];
        const parts = edges.slice(1).map((end, index) => stream.subarray(edges[index], end));
        assert.deepEqual(
          parts.flatMap((part) => [...reader.push(Buffer.from(part))]),
          decoded,
        );
      }),
    );
  });

  test("hostile bytes give an error or wait for more, never a crash of another kind", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          new ReplyReader().push(Buffer.from(bytes));
        } catch (error) {
          assert.match(String(error), /the cradle sent/);
        }
      }),
    );
  });
});
