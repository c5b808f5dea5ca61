import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { PIECE_BYTES } from "../blobs/descriptor.ts";
import { sha256Hex } from "../digest.ts";
import { directoryStore } from "../store/directory.ts";
import { frameOf, framesKey, tableKey, tableText } from "../store/frames.ts";
import type { ObjectStore } from "../store/object-store.ts";
import { blobOf } from "../store/test-support/blobs.ts";
import { contentOf } from "../store/test-support/content.ts";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { StoreBlobs } from "./blob-source.ts";

const live = () => AbortSignal.timeout(60_000);
const PIECES = 4;
const DATA = Buffer.concat(
  Array.from({ length: PIECES }, () => Buffer.concat([randomBytes(1_000), Buffer.alloc(PIECE_BYTES - 1_000, "text")])),
);
const BLOB = blobOf(DATA);
const TABLE_KEY = tableKey(BLOB.digest);

/** A store with the blob in frames, and what was asked of it; `before` is waited for before each answer. */
async function setUp() {
  const directory = temporaryDirectory();
  const real = directoryStore(directory.path);
  const frames = await Promise.all(
    Array.from({ length: PIECES }, (_, piece) =>
      frameOf(DATA.subarray(piece * PIECE_BYTES, (piece + 1) * PIECE_BYTES)),
    ),
  );
  const bytes = Buffer.concat(frames);
  const table = { sha256: sha256Hex(bytes), sizeBytes: DATA.length, frames: frames.map(({ length }) => length) };
  await real.put(framesKey(BLOB.digest, table), contentOf(bytes, 50_000), live());
  await real.put(TABLE_KEY, contentOf(tableText(table)), live());
  const rig = {
    asked: [] as string[],
    before: async (_key: string, _signal: AbortSignal): Promise<void> => undefined,
    put: (key: string, content: Buffer | string) => real.put(key, contentOf(content, 50_000), live()),
    framesKey: framesKey(BLOB.digest, table),
    table: tableText(table),
    bytes,
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
  const get: ObjectStore["get"] = async function* (key, range, signal) {
    rig.asked.push(key);
    await rig.before(key, signal);
    yield* real.get(key, range, signal);
  };
  const objects: ObjectStore = Object.create(real, { get: { value: get } });
  return { ...rig, rig, source: new StoreBlobs(objects) };
}

async function pieceOf(source: StoreBlobs, piece: number): Promise<void> {
  const into = Buffer.alloc(PIECE_BYTES);
  await source.read(BLOB, piece, into, live());
  assert.ok(DATA.subarray(piece * PIECE_BYTES, (piece + 1) * PIECE_BYTES).equals(into));
}

test("how the data lies is asked for once, however many read", async () => {
  using made = await setUp();
  made.source.prepare(BLOB, live());
  await Promise.all([0, 1, 2, 3, 0].map((piece) => pieceOf(made.source, piece)));
  assert.equal(made.rig.asked.filter((key) => key === TABLE_KEY).length, 1);
});

test("a reader does not fail with whoever asked before it and gave up", async () => {
  using made = await setUp();
  const early = new AbortController();
  made.rig.before = (_key, signal) =>
    new Promise((resolve, reject) => {
      if (signal !== early.signal) return resolve();
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  made.source.prepare(BLOB, early.signal);
  const readers = [0, 1, 2].map((piece) => pieceOf(made.source, piece));
  await immediate();
  assert.equal(made.rig.asked.length, 1);
  early.abort(new Error("enough"));
  await Promise.all(readers);
  assert.equal(made.rig.asked.filter((key) => key === TABLE_KEY).length, 2);
});

test("what is damaged is asked for again, and nothing of it is kept", async () => {
  using made = await setUp();
  const { source, rig } = made;
  await pieceOf(source, 0);
  await rig.put(rig.framesKey, Buffer.alloc(rig.bytes.length));
  await assert.rejects(pieceOf(source, 1), { kind: "Internal" });
  await rig.put(rig.framesKey, rig.bytes);
  await rig.put(TABLE_KEY, "{}");
  await assert.rejects(pieceOf(source, 1), { kind: "Internal", message: /no table/ });
  await rig.put(TABLE_KEY, rig.table);
  for (let piece = 0; piece < PIECES; piece++) await pieceOf(source, piece);
});
