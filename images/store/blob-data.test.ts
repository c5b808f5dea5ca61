import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { PIECE_BYTES } from "../blobs/descriptor.ts";
import { canonicalJson, sha256Hex } from "../digest.ts";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { openBlobData } from "./blob-data.ts";
import { writeFrames } from "./frame-writer.ts";
import { type FrameTable, framesKey, tableKey, tableText } from "./frames.ts";
import { blobKey } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";
import { textContent } from "./push.ts";
import { blobOf } from "./test-support/blobs.ts";
import { bytesOf, contentOf } from "./test-support/content.ts";
import { STORES } from "./test-support/rigs.ts";

const live = () => AbortSignal.timeout(60_000);
const PIECES = 9;
/** Pieces of text, of noise and of both; the last one is short. */
const DATA = Buffer.concat(
  Array.from({ length: PIECES }, (_, piece) => {
    const length = piece === PIECES - 1 ? 12_288 : PIECE_BYTES;
    const noise = randomBytes([0, length, length >> 1][piece % 3] ?? 0);
    return Buffer.concat([noise, Buffer.alloc(length - noise.length, `piece ${piece} `)]);
  }),
);
const BLOB = blobOf(DATA);
const NAMED = [BLOB.digest, BLOB.descriptor] as const;

async function putFrames(objects: ObjectStore): Promise<FrameTable> {
  using directory = temporaryDirectory();
  const [from, to] = [join(directory.path, "data"), join(directory.path, "frames")];
  writeFileSync(from, DATA);
  const table = await writeFrames({ ...BLOB, from, to, signal: live() });
  await objects.put(framesKey(BLOB.digest, table), contentOf(readFileSync(to), 50_000), live());
  await objects.put(tableKey(BLOB.digest), textContent(tableText(table)), live());
  return table;
}

async function read(objects: ObjectStore, first: number, end: number): Promise<Buffer> {
  const data = await openBlobData(objects, ...NAMED, live());
  return await bytesOf(data.pieces(first, end, live()));
}

const partOf = (first: number, end: number) => DATA.subarray(first * PIECE_BYTES, end * PIECE_BYTES);

for (const [name, makeStore] of Object.entries(STORES)) {
  describe(`data of a blob in ${name}`, { concurrency: 2 }, () => {
    test("is the same in frames and plain, whatever pieces are asked for", async () => {
      await using framed = await makeStore();
      await using plain = await makeStore();
      const table = await putFrames(framed.objects);
      const { sizeBytes = 0 } = (await framed.objects.head(framesKey(BLOB.digest, table), live())) ?? {};
      assert.ok(sizeBytes < 0.7 * DATA.length, `${sizeBytes} of ${DATA.length} bytes`);
      await plain.objects.put(blobKey(BLOB.digest, "data"), contentOf(DATA, 50_000), live());
      for (const { objects } of [framed, plain]) {
        for (let first = 0; first < PIECES; first += 2) {
          for (const end of [first + 1, PIECES]) assert.ok(partOf(first, end).equals(await read(objects, first, end)));
        }
      }
    });

    test("comes in frames where both lie, and a reader that leaves early leaves nothing behind", async () => {
      await using store = await makeStore();
      await putFrames(store.objects);
      await store.objects.put(blobKey(BLOB.digest, "data"), contentOf(Buffer.alloc(DATA.length), 50_000), live());
      const data = await openBlobData(store.objects, ...NAMED, live());
      for await (const piece of data.pieces(0, PIECES, live())) {
        assert.ok(partOf(0, 1).equals(piece));
        break;
      }
      assert.ok(partOf(1, 3).equals(await bytesOf(data.pieces(1, 3, live()))));
    });

    test("that is damaged, cut short, gone or another's is refused, and sound pieces beside it are not", async () => {
      await using store = await makeStore();
      const { objects } = store;
      const table = await putFrames(objects);
      const key = framesKey(BLOB.digest, table);
      const whole = readFileSync(store.file(key));
      const [first = 0, second = 0] = table.frames;
      const damaged = Buffer.from(whole);
      damaged.writeUInt8((damaged[first + (second >> 1)] ?? 0) ^ 1, first + (second >> 1));
      writeFileSync(store.file(key), damaged);
      await assert.rejects(read(objects, 0, 3), { kind: "Internal", message: /the data of blob/ });
      assert.ok(partOf(0, 1).equals(await read(objects, 0, 1)));
      assert.ok(partOf(2, 3).equals(await read(objects, 2, 3)));
      writeFileSync(store.file(key), whole);
      truncateSync(store.file(key), first + 5);
      await assert.rejects(read(objects, 1, 2), { kind: "Internal" });
      assert.ok(partOf(0, 1).equals(await read(objects, 0, 1)));
      await objects.remove(key, live());
      await assert.rejects(read(objects, 0, 1), { kind: "NotFound" });
    });

    test("whose table lies about where frames begin is refused, though the table is well made", async () => {
      await using store = await makeStore();
      const { objects } = store;
      const table = await putFrames(objects);
      const [first = 0, second = 0, ...rest] = table.frames;
      const put = async (frames: readonly number[]) => {
        const lie = { ...table, frames };
        const text = canonicalJson({ version: 1, table: lie, tableSha256: sha256Hex(canonicalJson(lie)) });
        await objects.put(tableKey(BLOB.digest), textContent(text), live());
      };
      // The first frame is shorter than a whole piece, the second is one.
      await put([first - 1, second, ...rest]);
      await assert.rejects(read(objects, 0, 1), { kind: "Internal", message: /the data of blob/ });
      await assert.rejects(read(objects, 3, 4), { kind: "Internal", message: /the data of blob/ });
      await put(table.frames.map((_, piece) => Math.min(PIECE_BYTES, DATA.length - piece * PIECE_BYTES)));
      await assert.rejects(read(objects, 0, 1), { kind: "Internal", message: /the data of blob/ });
      await assert.rejects(read(objects, 7, 8), { kind: "Internal", message: /it ends/ });
      await put([first, second]);
      await assert.rejects(read(objects, 0, 1), { kind: "Internal", message: /no table of frames/ });
      truncateSync(store.file(tableKey(BLOB.digest)), 50);
      await assert.rejects(read(objects, 0, 1), { kind: "Internal", message: /no table of frames/ });
    });
  });
}

test("frames are written from sound data only, the same each time, and give up with their caller", async () => {
  using directory = temporaryDirectory();
  const [from, other] = [join(directory.path, "data"), join(directory.path, "other")];
  writeFileSync(from, DATA);
  const to = (n: number) => join(directory.path, `frames-${n}`);
  const tables = [];
  for (const n of [1, 2]) tables.push(await writeFrames({ ...BLOB, from, to: to(n), signal: live() }));
  assert.deepEqual(tables[0], tables[1]);
  assert.equal(sha256Hex(readFileSync(to(1))), tables[0]?.sha256);
  const damaged = Buffer.from(DATA);
  damaged.writeUInt8((damaged[DATA.length - 1] ?? 0) ^ 1, DATA.length - 1);
  for (const bytes of [damaged, DATA.subarray(0, -1)]) {
    writeFileSync(other, bytes);
    const writing = writeFrames({ ...BLOB, from: other, to: to(3 + bytes.length), signal: live() });
    await assert.rejects(writing, { kind: "Internal", message: /the data of blob/ });
  }
  const reason = new Error("enough");
  await assert.rejects(writeFrames({ ...BLOB, from, to: to(0), signal: AbortSignal.abort(reason) }), reason);
});
