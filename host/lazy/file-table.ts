import { PieceSet } from "./pieces.ts";
import type { LazyFile, LazyFiles } from "./requests.ts";

/** A lazy file as it goes from one thread to another. */
export interface SharedFile {
  readonly name: string;
  readonly id: number;
  readonly fd: number;
  readonly sizeBytes: number;
  readonly pieceBytes: number;
  readonly present: SharedArrayBuffer;
  readonly touched: SharedArrayBuffer;
  readonly marks: SharedArrayBuffer;
  readonly counts: SharedArrayBuffer;
}

/** What the threads of a server tell each other about its files. */
export type FileChange = { readonly add: SharedFile } | { readonly remove: number };

/** The files that a server knows, by name and by number. */
export class FileTable implements LazyFiles {
  readonly #byId = new Map<number, LazyFile>();
  readonly #byName = new Map<string, LazyFile>();
  readonly #refresh: () => void;

  /** `refresh` is called before a file is taken for unknown: it may add some. */
  constructor(refresh: () => void = () => undefined) {
    this.#refresh = refresh;
  }

  byId(id: number): LazyFile | undefined {
    return find(this.#byId, id, this.#refresh);
  }

  byName(name: string): LazyFile | undefined {
    return find(this.#byName, name, this.#refresh);
  }

  add(file: LazyFile): void {
    this.#byId.set(file.id, file);
    this.#byName.set(file.name, file);
  }

  remove(id: number): void {
    const file = this.#byId.get(id);
    if (file !== undefined) this.#byName.delete(file.name);
    this.#byId.delete(id);
  }

  apply(change: FileChange): void {
    if ("remove" in change) {
      this.remove(change.remove);
      return;
    }
    const { name, id, fd, sizeBytes, pieceBytes, counts } = change.add;
    this.add({
      name,
      id,
      fd,
      present: new PieceSet(sizeBytes, pieceBytes, change.add.present),
      touched: new PieceSet(sizeBytes, pieceBytes, change.add.touched),
      marks: new PieceSet(sizeBytes, pieceBytes, change.add.marks),
      counts: new Int32Array(counts),
    });
  }
}

/** A file for the other thread: the same memory. */
export function shareFile({ name, id, fd, present, touched, marks, counts }: LazyFile): SharedFile {
  const { sizeBytes, pieceBytes } = present;
  return {
    name,
    id,
    fd,
    sizeBytes,
    pieceBytes,
    present: present.bits.buffer,
    touched: touched.bits.buffer,
    marks: marks.bits.buffer,
    counts: counts.buffer,
  };
}

function find<Key>(files: ReadonlyMap<Key, LazyFile>, key: Key, refresh: () => void): LazyFile | undefined {
  const found = files.get(key);
  if (found !== undefined) return found;
  refresh();
  return files.get(key);
}
