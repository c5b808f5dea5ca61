import { constants } from "node:os";
import type { FileInfo } from "#core/sandbox.ts";

interface FakeFile {
  readonly mode: number;
  /** Undefined for a directory. */
  readonly bytes: Uint8Array | undefined;
}

/** The errno that ends a file action. */
export class Errno extends Error {
  readonly code: number;

  constructor(name: keyof typeof constants.errno) {
    super(name);
    this.code = constants.errno[name];
  }
}

/** A file system in memory: files and directories by path, no links. Everything under `/forbidden` refuses access. */
export class FakeFiles {
  readonly #files = new Map<string, FakeFile>([
    ["/", { mode: 0o755, bytes: undefined }],
    ["/forbidden", { mode: 0o700, bytes: undefined }],
  ]);

  copy(): FakeFiles {
    const copy = new FakeFiles();
    for (const [path, file] of this.#files) copy.#files.set(path, file);
    return copy;
  }

  /** Every path but the root, in order. */
  paths(): readonly string[] {
    return [...this.#files.keys()].filter((path) => path !== "/").sort();
  }

  read(path: Uint8Array): Uint8Array {
    const { bytes } = this.#get(key(path));
    if (bytes === undefined) throw new Errno("EISDIR");
    return bytes;
  }

  write(
    path: Uint8Array,
    options: { readonly mode: number; readonly parents: boolean; readonly bytes: Uint8Array },
  ): void {
    this.checkWritable(path, options.parents);
    this.#files.set(key(path), { mode: options.mode, bytes: options.bytes });
  }

  /** Makes parents if told to, and fails where `write` would. */
  checkWritable(path: Uint8Array, parents: boolean): void {
    this.#parent(key(path), parents);
    const old = this.#files.get(key(path));
    if (old !== undefined && old.bytes === undefined) throw new Errno("EISDIR");
  }

  list(path: Uint8Array): FileInfo[] {
    const dir = key(path);
    if (this.#get(dir).bytes !== undefined) throw new Errno("ENOTDIR");
    return this.#children(dir).map((child) => this.#entry(child));
  }

  stat(path: Uint8Array): FileInfo {
    this.#get(key(path));
    return this.#entry(key(path));
  }

  makeDirectory(path: Uint8Array, options: { readonly mode: number; readonly parents: boolean }): void {
    const name = key(path);
    if (this.#files.has(name)) {
      if (options.parents && this.#files.get(name)?.bytes === undefined) return;
      throw new Errno("EEXIST");
    }
    this.#parent(name, options.parents);
    this.#files.set(name, { mode: options.mode, bytes: undefined });
  }

  remove(path: Uint8Array, recursive: boolean): void {
    const name = key(path);
    this.#get(name);
    if (!recursive && this.#children(name).length > 0) throw new Errno("ENOTEMPTY");
    for (const other of [...this.#files.keys()])
      if (other === name || other.startsWith(`${name}/`)) this.#files.delete(other);
  }

  changeMode(path: Uint8Array, mode: number): void {
    this.#files.set(key(path), { ...this.#get(key(path)), mode });
  }

  /** Files only: what a move of a directory takes along is more than edge tests need. */
  move(path: Uint8Array, target: Uint8Array, options: { readonly replace: boolean; readonly parents: boolean }): void {
    const file = this.#get(key(path));
    if (file.bytes === undefined) throw new Errno("EXDEV");
    if (!options.replace && this.#files.has(key(target))) throw new Errno("EEXIST");
    this.checkWritable(target, options.parents);
    this.#files.delete(key(path));
    this.#files.set(key(target), file);
  }

  #get(path: string): FakeFile {
    if (path.startsWith("/forbidden/")) throw new Errno("EACCES");
    const file = this.#files.get(path);
    if (file === undefined) throw new Errno("ENOENT");
    return file;
  }

  #parent(path: string, make: boolean): void {
    if (path.startsWith("/forbidden/")) throw new Errno("EACCES");
    const parent = path.slice(0, path.lastIndexOf("/")) || "/";
    const found = this.#files.get(parent);
    if (found?.bytes !== undefined) throw new Errno("ENOTDIR");
    if (found !== undefined) return;
    if (!make) throw new Errno("ENOENT");
    this.#parent(parent, true);
    this.#files.set(parent, { mode: 0o755, bytes: undefined });
  }

  #children(dir: string): string[] {
    const prefix = dir === "/" ? "/" : `${dir}/`;
    return [...this.#files.keys()].filter(
      (path) => path.startsWith(prefix) && path !== dir && !path.slice(prefix.length).includes("/"),
    );
  }

  #entry(path: string): FileInfo {
    const { mode, bytes } = this.#get(path);
    return {
      name: Buffer.from(path.slice(path.lastIndexOf("/") + 1), "latin1"),
      type: bytes === undefined ? "directory" : "file",
      mode,
      uid: 0,
      gid: 0,
      size: bytes?.length ?? 0,
      mtimeNs: 0n,
      target: undefined,
    };
  }
}

/** Paths are bytes: one character a byte keeps them apart. */
function key(path: Uint8Array): string {
  const text = Buffer.from(path).toString("latin1").replace(/\/+$/, "");
  return text === "" ? "/" : text;
}
