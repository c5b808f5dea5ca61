import { badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { TAR_BLOCK_BYTES } from "#core/tar/header.ts";
import { type Extent, TREE_EXTENTS_LIMIT } from "#core/tree.ts";

/** Digits of the largest offset. */
const NUMBER_LIMIT = 16;

/**
 * Reads the map at the start of a sparse file's data, in GNU's format 1.0: decimal numbers, one a line (how many extents, then the
 * offset and size of each), and zeros to the end of the block.
 */
class SparseMap {
  readonly #owner: string;
  #numbers: number[] = [];
  #digits = "";

  /** `owner` names the entry in errors. */
  constructor(owner: string) {
    this.#owner = owner;
  }

  /** Undefined until the map is whole; then its extents, and the rest of its block is to be skipped. */
  push(bytes: Uint8Array): { readonly taken: number; readonly extents: readonly Extent[] | undefined } {
    for (const [index, byte] of bytes.entries()) {
      if (byte === 0x0a) this.#number();
      else if (byte >= 0x30 && byte <= 0x39 && this.#digits.length < NUMBER_LIMIT) {
        this.#digits += String.fromCharCode(byte);
      } else throw this.#damaged();
      const [count] = this.#numbers;
      if (count !== undefined && this.#numbers.length === 1 + 2 * count) {
        return { taken: index + 1, extents: this.#extents() };
      }
    }
    return { taken: bytes.length, extents: undefined };
  }

  #number(): void {
    if (this.#digits === "") throw this.#damaged();
    const value = Number(this.#digits);
    this.#digits = "";
    this.#numbers.push(value);
    if (this.#numbers.length === 1 && value > TREE_EXTENTS_LIMIT) {
      throw badInput(
        `${this.#owner} has more than ${TREE_EXTENTS_LIMIT} parts between its holes`,
        "archive it without --sparse",
      );
    }
  }

  #extents(): Extent[] {
    const extents: Extent[] = [];
    for (let at = 1; at < this.#numbers.length; at += 2) {
      extents.push({ offset: this.#numbers[at] ?? 0, size: this.#numbers[at + 1] ?? 0 });
    }
    return extents;
  }

  #damaged(): Error {
    return badInput(`the map of the sparse file ${this.#owner} is damaged`);
  }
}

/** The data of a sparse file in an archive: its map first, which the entry waits for, then what is no hole. */
export class SparseBody {
  readonly #sink: EntrySink;
  readonly #entry: TreeEntry;
  readonly #map: SparseMap;
  readonly #bytes: number;
  #seen = 0;
  #skip: number | undefined;

  /** `bytes`: of map and data together, as the archive's header has them. */
  constructor(sink: EntrySink, entry: TreeEntry, bytes: number) {
    this.#sink = sink;
    this.#entry = entry;
    this.#bytes = bytes;
    this.#map = new SparseMap(shown(entry.path));
  }

  data(bytes: Uint8Array): void {
    let rest = bytes;
    if (this.#skip === undefined) {
      const { taken, extents } = this.#map.push(rest);
      this.#seen += taken;
      rest = rest.subarray(taken);
      if (extents === undefined) return;
      this.#skip = (TAR_BLOCK_BYTES - (this.#seen % TAR_BLOCK_BYTES)) % TAR_BLOCK_BYTES;
      this.#check(extents, this.#bytes - this.#seen - this.#skip);
      this.#sink.entry({ ...this.#entry, extents });
    }
    const skipped = Math.min(this.#skip, rest.length);
    this.#skip -= skipped;
    if (rest.length > skipped) this.#sink.data(rest.subarray(skipped));
  }

  /** Throws when the map was not whole. */
  end(): void {
    if (this.#skip === undefined) throw badInput(`the map of the sparse file ${shown(this.#entry.path)} is damaged`);
  }

  #check(extents: readonly Extent[], bytes: number): void {
    const owner = shown(this.#entry.path);
    let end = 0;
    let sum = 0;
    for (const { offset, size } of extents) {
      if (offset < end || offset + size > this.#entry.size) {
        throw badInput(`the map of the sparse file ${owner} is out of order`);
      }
      end = offset + size;
      sum += size;
    }
    if (sum !== bytes) throw badInput(`the map of the sparse file ${owner} does not fit its data`);
  }
}
