import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync } from "node:fs";

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** What a copy was made of, and when. */
export interface Source {
  readonly dir: string;
  /** Before the copy was begun, and after writers were held if they were: milliseconds since 1970. */
  readonly atMs: number;
}

/** Larger files are read from the copy: in pieces, and nobody could take back the first when the last has changed. */
const MOST_BYTES = 256 * 1024;
/** Of the memory that the data of several files is read into. */
const SLAB_BYTES = 2 ** 20;
/** The kernel notes changes by a clock that stands still between two ticks: what was changed so shortly before may change unseen. */
const TICKS_NS = 50_000_000n;

/**
 * Reads files of a copy where they still are what they were: in the tree that it was made of, which has them in memory, while a copy's
 * are read from the disk. A file's time of change tells: nobody in a sandbox can set it, the kernel sets it before any data changes,
 * and making the copy has taken away every mapping that could be written through without that. The tree is hostile and changes: names are
 * looked up in open directories alone, and followed nowhere.
 */
export class Original implements Disposable {
  readonly #oldNs: bigint;
  readonly #dev: bigint;
  /** Of the directory that the walk is in; undefined once the tree has another there. */
  #fd: number | undefined;
  #slab = Buffer.alloc(0);

  /** Throws what opening the directory does. */
  constructor({ dir, atMs }: Source) {
    this.#oldNs = BigInt(Math.floor(atMs)) * 1_000_000n - TICKS_NS;
    this.#fd = openSync(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    this.#dev = fstatSync(this.#fd, { bigint: true }).dev;
  }

  /** The data of the file that the copy has by this name in the walk's directory; undefined: to be read from the copy. */
  read(name: Buffer, copied: BigIntStats): Uint8Array | undefined {
    const size = Number(copied.size);
    if (this.#fd === undefined || size === 0 || size > MOST_BYTES || copied.ctimeNs >= this.#oldNs) return undefined;
    const fd = openIn(this.#fd, name, O_NONBLOCK);
    if (fd === undefined) return undefined;
    try {
      const into = this.#room(size);
      // At an offset: that takes nothing out of a pipe.
      const count = readSync(fd, into, 0, size, 0);
      const { dev, ino, ctimeNs, size: now } = fstatSync(fd, { bigint: true });
      const isSame = dev === this.#dev && ino === copied.ino && ctimeNs === copied.ctimeNs && now === copied.size;
      return isSame && count === size ? into : undefined;
    } catch (error) {
      return undefinedIfErrno(error);
    } finally {
      closeSync(fd);
    }
  }

  /** Follows the walk into a directory of the one that it is in. */
  descend(name: Buffer): void {
    if (this.#fd !== undefined) this.#replace(openIn(this.#fd, name, O_DIRECTORY));
  }

  /** Follows it back, to the one that has this number in both trees. */
  ascend(ino: bigint): void {
    if (this.#fd === undefined) return;
    const above = openIn(this.#fd, Buffer.from(".."), O_DIRECTORY);
    const found = above === undefined ? undefined : fstatSync(above, { bigint: true });
    const isThere = found?.dev === this.#dev && found.ino === ino;
    if (above !== undefined && !isThere) closeSync(above);
    this.#replace(isThere ? above : undefined);
  }

  [Symbol.dispose](): void {
    this.#replace(undefined);
  }

  #replace(next: number | undefined): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = next;
  }

  #room(bytes: number): Uint8Array {
    if (this.#slab.length < bytes) this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    const room = this.#slab.subarray(0, bytes);
    this.#slab = this.#slab.subarray(bytes);
    return room;
  }
}

/** What is there by this name now; undefined when that cannot be opened, whatever it is. */
function openIn(fd: number, name: Buffer, flags: number): number | undefined {
  try {
    return openSync(Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), name]), O_RDONLY | O_NOFOLLOW | flags);
  } catch (error) {
    return undefinedIfErrno(error);
  }
}

function undefinedIfErrno(error: unknown): undefined {
  if (error instanceof Error && "errno" in error) return undefined;
  throw error;
}
