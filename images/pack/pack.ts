import type { PackOptions, Skipped } from "#core/packing.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { ByteString, TreeEntry } from "#core/tar/entry.ts";
import { CHUNK_BYTES } from "../erofs/format.ts";
import type { Inode } from "../erofs/inode.ts";
import { buildLayer, type Feed } from "../layers/layer.ts";
import { isKeptXattr } from "../layers/xattr-policy.ts";
import { DEFAULT_LIMITS, type ImportLimits } from "../limits.ts";
import type { LayerStore } from "../store.ts";
import { type Names, pathMatcher } from "./patterns.ts";
import { NEVER_SCRUBBED, SCRUB_PATTERNS } from "./scrub.ts";
import type { FileBytes, FileStats, Found, Taken, Visitor, Walk } from "./visit.ts";

/** Every sandbox has its own mounted over these; what an upper has there was made as a place for that. */
const MOUNTED_DIRECTORIES: ReadonlySet<ByteString> = new Set(["proc", "sys", "dev"]);
const MOUNTED_FILES: ReadonlySet<ByteString> = new Set(["hostname", "hosts", "resolv.conf"]);

/** An upper to pack, and where to. */
export interface PackSource {
  readonly store: LayerStore;
  /** Walks the upper, or a copy of it. What is in it is hostile. */
  readonly walk: Walk;
  readonly options: Pick<PackOptions, "exclude" | "keep">;
  /** What every sandbox has of its own: left out, and counted nowhere. */
  readonly isOwn?: (names: Names) => boolean;
  readonly limits?: ImportLimits;
  readonly signal: AbortSignal;
}

/** The layer of an upper. */
export interface PackedUpper {
  readonly digest: LayerDigest;
  readonly entries: number;
  readonly dataBytes: number;
  readonly skipped: Skipped;
}

/** Checks patterns before anything is held still for them. Throws `InvalidArgument`. */
export function checkPatterns(exclude: readonly string[]): void {
  pathMatcher(exclude);
}

/**
 * Makes a layer of what an upper holds: changed files, deletions and hidden directories as the overlay has them. Memory: the tree,
 * and a chunk of data. Rejects with `TooLarge`, `StorageFull`, or the reason of the signal; nothing is left then. A file that
 * shrinks while it is read ends in zeros, one that grows ends where it did.
 */
export async function packUpper(source: PackSource): Promise<PackedUpper> {
  const { store, signal } = source;
  const options = { store, limits: source.limits ?? DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  let packer: Packer | undefined;
  const { digest, dataBytes } = await buildLayer(options, async (feed) => {
    const packing = new Packer(feed, source);
    packer = packing;
    await source.walk<Inode>(packing, signal);
  });
  if (packer === undefined) throw new Error("a layer was built of nothing");
  return { digest, dataBytes, entries: packer.entries, skipped: packer.skipped };
}

class Packer implements Visitor<Inode> {
  entries = 0;
  #skipped = { excluded: 0, scrubbed: 0, special: 0 };
  readonly #feed: Feed;
  readonly #isExcluded: (names: Names) => boolean;
  readonly #isScrubbed: (names: Names) => boolean;
  readonly #isOwn: (names: Names) => boolean;
  readonly #isPublic = pathMatcher(NEVER_SCRUBBED);
  readonly #buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  /** Files of which more names are to come. */
  readonly #linked = new Map<bigint, { readonly inode: Inode; left: bigint }>();

  constructor(feed: Feed, { options: { exclude, keep }, isOwn }: Pick<PackSource, "options" | "isOwn">) {
    this.#feed = feed;
    this.#isOwn = isOwn ?? (() => false);
    this.#isExcluded = pathMatcher(exclude);
    const rules = Object.entries(SCRUB_PATTERNS).filter(([rule]) => !keep.some((kept) => kept === rule));
    this.#isScrubbed = pathMatcher(rules.flatMap(([, patterns]) => patterns));
  }

  get skipped(): Skipped {
    return { ...this.#skipped };
  }

  takes(found: Found): boolean {
    if (found.names.length === 0) return true;
    if (isMountPlace(found) || this.#isOwn(found.names) || this.#isLeftOut(found)) return false;
    this.entries += 1;
    return true;
  }

  async visit({ names, stats, entry: described, file, data, above }: Taken<Inode>): Promise<Inode> {
    const { builder } = this.#feed;
    const entry = withKeptXattrs(described);
    if (above === undefined) return builder.tree.place(entry);
    const name = names.at(-1) ?? "";
    const earlier = this.#earlier(stats);
    if (earlier !== undefined) {
      builder.tree.link(above, name, earlier);
      return earlier;
    }
    const inode = builder.entryIn(above, name, entry);
    if (data !== undefined) await this.#whole(data);
    else if (file !== undefined) await this.#content(file, Number(stats.size));
    if (!stats.isDirectory() && stats.nlink > 1n) this.#linked.set(stats.ino, { inode, left: stats.nlink - 1n });
    return inode;
  }

  #isLeftOut({ names, stats }: Found): boolean {
    if (this.#isExcluded(names)) this.#skipped.excluded += 1;
    else if (isWhiteout(stats)) return false;
    else if (this.#isScrubbed(names) && !this.#isPublic(names)) this.#skipped.scrubbed += 1;
    else if (stats.isSocket() || stats.isCharacterDevice() || stats.isBlockDevice()) this.#skipped.special += 1;
    else return false;
    return true;
  }

  #earlier({ ino, nlink }: FileStats): Inode | undefined {
    const linked = nlink > 1n ? this.#linked.get(ino) : undefined;
    if (linked === undefined) return undefined;
    linked.left -= 1n;
    if (linked.left === 0n) this.#linked.delete(ino);
    return linked.inode;
  }

  async #whole(data: Uint8Array): Promise<void> {
    this.#feed.builder.data(data);
    await this.#feed.drain();
  }

  async #content(file: FileBytes, size: number): Promise<void> {
    let at = 0;
    for await (const { offset, size: length } of file.extents()) {
      this.#feed.builder.hole(offset - at);
      await this.#bytes(file, offset, length);
      at = offset + length;
    }
    this.#feed.builder.hole(size - at);
  }

  async #bytes(file: FileBytes, offset: number, size: number): Promise<void> {
    for (let done = 0; done < size; ) {
      const piece = this.#buffer.subarray(0, Math.min(size - done, CHUNK_BYTES));
      const count = await file.read(piece, offset + done);
      if (count === 0) return this.#feed.builder.hole(size - done);
      this.#feed.builder.data(piece.subarray(0, count));
      done += count;
      await this.#feed.drain();
    }
  }
}

/** What the overlay and the host's security modules noted for themselves is left out. */
function withKeptXattrs(entry: TreeEntry): TreeEntry {
  if (entry.xattrs === undefined) return entry;
  return { ...entry, xattrs: new Map([...entry.xattrs].filter(([attribute]) => isKeptXattr(attribute))) };
}

function isMountPlace({ names, stats }: Found): boolean {
  const [first = "", second = ""] = names;
  if (names.length === 1) return MOUNTED_DIRECTORIES.has(first) && stats.isDirectory();
  return names.length === 2 && first === "etc" && MOUNTED_FILES.has(second) && stats.isFile() && stats.size === 0n;
}

/** An overlay's mark that a name of the layers below is gone. */
function isWhiteout(stats: FileStats): boolean {
  return stats.isCharacterDevice() && stats.rdev === 0n;
}
