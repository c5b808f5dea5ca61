import assert from "node:assert/strict";
import { test } from "node:test";
import { importArtifact } from "./import.ts";
import { member, temporaryStore } from "./test-support/fixtures.ts";

const MIB = 2 ** 20;
const PIECE_BYTES = 256 * 1024;

test("an import holds no more than a few stages of memory however large the archive is", async () => {
  using made = await temporaryStore();
  const size = 512 * MIB;
  let peakBytes = 0;
  async function* source(): AsyncIterable<Uint8Array> {
    yield member({ path: "big", size });
    for (let sent = 0; sent < size; sent += PIECE_BYTES) {
      const piece = Buffer.alloc(PIECE_BYTES);
      piece.writeDoubleLE(sent, 8);
      yield piece;
      peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
    }
    yield Buffer.alloc(1024);
  }
  const before = process.memoryUsage.rss();
  const { sizeBytes } = await importArtifact({ store: made.store, source: source(), format: "tar" });
  assert.ok(sizeBytes >= size);
  assert.ok(peakBytes - before < 200 * MIB, `grew by ${Math.round((peakBytes - before) / MIB)} MiB`);
});
