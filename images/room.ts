import { open, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { sha256 } from "./digest.ts";
import { storeFull } from "./store-full.ts";

/** The node's journal and its sandboxes' files often lie on the same disk: an import must never take the last of it. */
const RESERVE_BYTES = 2 ** 30;
/** A disk so small that the whole reserve would leave nothing of it keeps this part free instead. */
const RESERVE_PART = 1 / 20;
/** Bytes between two looks: what imports under way can overshoot the reserve by. */
const LOOK_BYTES = 2 ** 24;

/** What may still be written to the file system of a directory; it is looked at again as the writing goes on. */
export class DiskRoom {
  readonly #dir: string;
  #allowedBytes = 0;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** To be awaited before a write of `bytes`. Rejects with `StorageFull` when the write would reach into the reserve. */
  async take(bytes: number): Promise<void> {
    if (bytes > this.#allowedBytes) {
      const { bavail, blocks, bsize } = await statfs(this.#dir);
      const spareBytes = bavail * bsize - Math.min(RESERVE_BYTES, blocks * bsize * RESERVE_PART);
      if (bytes > spareBytes) throw storeFull();
      this.#allowedBytes = Math.max(bytes, Math.min(LOOK_BYTES, spareBytes));
    }
    this.#allowedBytes -= bytes;
  }
}

/** Writes a new file within the room of its disk; resolves with what is in it then. Rejects with `StorageFull`, and as the source does: it is not whole then. */
export async function writeWithinRoom(
  path: string,
  source: AsyncIterable<Uint8Array>,
): Promise<{ readonly sizeBytes: number; readonly sha256: string }> {
  const room = new DiskRoom(dirname(path));
  const whole = sha256();
  let sizeBytes = 0;
  await using file = await open(path, "wx", 0o600);
  for await (const part of source) {
    await room.take(part.length);
    await file.writeFile(part);
    whole.update(part);
    sizeBytes += part.length;
  }
  return { sizeBytes, sha256: whole.hex() };
}
