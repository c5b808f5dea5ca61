import { SandboxError } from "#core/errors.ts";
import { type ByteString, badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import type { BlobWriter } from "../blobs/blob.ts";
import { CHUNK_BYTES, HOLE } from "../erofs/format.ts";
import type { Inode } from "../erofs/inode.ts";
import type { ImportLimits } from "../limits.ts";
import type { LayerTree } from "./tree.ts";

const ZEROS = Buffer.alloc(CHUNK_BYTES);

/** What a builder does with entries that are more than files. */
export interface BuilderOptions {
  readonly limits: ImportLimits;
  /** `oci`: names that start with `.wh.` are deletions. `none`: they are names. */
  readonly whiteouts: "oci" | "none";
  /** Device nodes other than an overlay's whiteout: left out and counted, or refused. Sandboxes bring their own /dev. */
  readonly devices: "skip" | "refuse";
  /** Entries to leave out, by path without leading `./` or `/`. */
  readonly isExcluded?: (path: string) => boolean;
}

/** Turns entries and their data into a tree and a blob. Memory: the tree, and one chunk of data beside the blob's stages. */
export class LayerBuilder implements EntrySink {
  readonly tree: LayerTree;
  readonly #blob: BlobWriter;
  readonly #options: BuilderOptions;
  readonly #chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  #collected = 0;
  #left = 0;
  #addresses: number[] | undefined;
  #dataBytes = 0;
  #skippedDevices = 0;

  constructor(tree: LayerTree, blob: BlobWriter, options: BuilderOptions) {
    this.tree = tree;
    this.#blob = blob;
    this.#options = options;
  }

  get dataBytes(): number {
    return this.#dataBytes;
  }

  get skippedDevices(): number {
    return this.#skippedDevices;
  }

  entry(entry: TreeEntry): void {
    this.#begin(entry);
    if (this.#isLeftOut(entry) || this.#isMarker(entry)) return;
    this.#take(this.tree.place(entry), entry);
  }

  /** As `entry`, by its name in a directory of the tree, however deep that lies. Leaves nothing out. */
  entryIn(directory: Inode, name: ByteString, entry: TreeEntry): Inode {
    this.#begin(entry);
    const inode = this.tree.placeIn(directory, name, entry);
    this.#take(inode, entry);
    return inode;
  }

  data(bytes: Uint8Array): void {
    if (bytes.length > this.#left) throw new Error("more data than the entry announced");
    this.#left -= bytes.length;
    const addresses = this.#addresses;
    if (addresses === undefined) return;
    let rest = bytes;
    // A whole chunk in one piece needs no copy.
    if (this.#collected === 0 && this.#left === 0 && rest.length <= CHUNK_BYTES) {
      if (rest.length > 0) addresses.push(this.#blob.add(rest));
      return;
    }
    while (rest.length > 0) {
      const piece = rest.subarray(0, CHUNK_BYTES - this.#collected);
      this.#chunk.set(piece, this.#collected);
      this.#collected += piece.length;
      rest = rest.subarray(piece.length);
      if (this.#collected === CHUNK_BYTES || (rest.length === 0 && this.#left === 0)) this.#flush(addresses);
    }
  }

  /** Bytes of the file that are zeros and that nobody has to read. */
  hole(bytes: number): void {
    let left = bytes;
    while (left > 0) {
      const whole = this.#collected === 0 ? Math.floor(left / CHUNK_BYTES) : 0;
      this.#skip(whole);
      left -= whole * CHUNK_BYTES;
      const piece = Math.min(left, CHUNK_BYTES - this.#collected);
      if (piece > 0) this.data(ZEROS.subarray(0, piece));
      left -= piece;
    }
  }

  #skip(chunks: number): void {
    if (chunks * CHUNK_BYTES > this.#left) throw new Error("more data than the entry announced");
    this.#left -= chunks * CHUNK_BYTES;
    for (let n = 0; n < chunks; n += 1) this.#addresses?.push(HOLE);
  }

  #begin(entry: TreeEntry): void {
    this.#left = entry.type === "file" ? entry.size : 0;
    this.#addresses = undefined;
    this.#dataBytes += this.#left;
    if (this.#dataBytes <= this.#options.limits.dataBytes) return;
    throw new SandboxError("TooLarge", `the tree has more than ${this.#options.limits.dataBytes} bytes of file data`, {
      hint: `${shown(entry.path)} was the one too many`,
    });
  }

  #take(inode: Inode, entry: TreeEntry): void {
    if (inode.content.type === "file" && entry.type === "file") this.#addresses = inode.content.chunks;
  }

  #flush(addresses: number[]): void {
    addresses.push(this.#blob.add(this.#chunk.subarray(0, this.#collected)));
    this.#collected = 0;
  }

  #isLeftOut(entry: TreeEntry): boolean {
    if (this.#options.isExcluded?.(entry.path.replace(/^[./]*\//, "")) === true) return true;
    if (entry.type === "socket") return true;
    if (entry.type !== "character-device" && entry.type !== "block-device") return false;
    if (entry.type === "character-device" && entry.major === 0 && entry.minor === 0) return false;
    if (this.#options.devices === "refuse") {
      throw badInput(`${shown(entry.path)} is a device node`, "leave devices out: a sandbox brings its own /dev");
    }
    this.#skippedDevices++;
    return true;
  }

  /** Acts on an OCI whiteout; false for everything else. */
  #isMarker(entry: TreeEntry): boolean {
    if (this.#options.whiteouts === "none") return false;
    const path = entry.path.replace(/\/+$/, "");
    const cut = path.lastIndexOf("/") + 1;
    const name = path.slice(cut);
    if (!name.startsWith(".wh.")) return false;
    if (name === ".wh..wh..opq") this.tree.opaque(path.slice(0, cut));
    // Other names with the double prefix are the bookkeeping of an old union file system.
    else if (!name.startsWith(".wh..wh.")) this.tree.whiteout(path.slice(0, cut) + name.slice(".wh.".length));
    return true;
  }
}
