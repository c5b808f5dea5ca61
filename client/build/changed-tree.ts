import { Batch } from "#core/tar/batch.ts";
import type { EntrySink, TreeEntry } from "#core/tar/entry.ts";
import { TarReader } from "#core/tar/reader.ts";
import { contentBytes, endOfArchive, type TarEntry, tarHeader, tarPadding } from "#core/tar/writer.ts";

/** A tar archive with its entries changed, or left out where `change` gives none; holes stay holes. */
export async function* changedTree(
  source: AsyncIterable<Uint8Array>,
  change: (entry: TreeEntry) => TreeEntry | undefined,
): AsyncGenerator<Uint8Array> {
  const writer = new ChangedEntries(change);
  const reader = new TarReader(writer, { sparse: true });
  for await (const piece of source) {
    reader.push(piece);
    // Before the next piece: what is written are parts of this one.
    const bytes = writer.take();
    if (bytes.length > 0) yield bytes;
  }
  reader.finish();
  yield writer.end();
}

class ChangedEntries implements EntrySink {
  readonly #change: (entry: TreeEntry) => TreeEntry | undefined;
  readonly #batch = new Batch();
  #isLeftOut = false;
  #padding: Uint8Array = new Uint8Array(0);
  #left = 0;

  constructor(change: (entry: TreeEntry) => TreeEntry | undefined) {
    this.#change = change;
  }

  entry(entry: TreeEntry): void {
    const changed = this.#change(entry);
    this.#isLeftOut = changed === undefined;
    if (changed === undefined) return;
    const written = tarEntry(changed);
    this.#batch.push(tarHeader(written));
    this.#left = contentBytes(written);
    this.#padding = tarPadding(this.#left);
  }

  data(bytes: Uint8Array): void {
    if (this.#isLeftOut) return;
    this.#batch.push(bytes);
    this.#left -= bytes.length;
    if (this.#left === 0) this.#batch.push(this.#padding);
  }

  take(): Uint8Array {
    return this.#batch.take();
  }

  end(): Uint8Array {
    this.#batch.push(endOfArchive());
    return this.#batch.take();
  }
}

function tarEntry(entry: TreeEntry): TarEntry {
  const { type, path, mode, uid, gid, size, extents, mtimeS, mtimeNs, target, xattrs } = entry;
  if (type === "socket") throw new Error("an archive holds no sockets");
  return {
    ...{ type, mode, uid, gid, size, extents, xattrs },
    name: Buffer.from(type === "directory" ? `${path.replace(/\/+$/, "")}/` : path, "latin1"),
    mtimeNs: BigInt(mtimeS) * 1_000_000_000n + BigInt(mtimeNs),
    target: type === "link" || type === "symlink" ? Buffer.from(target, "latin1") : undefined,
    // A tree of a sandbox has none.
    device: 0,
  };
}
