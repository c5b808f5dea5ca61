import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  futimesSync,
  lchownSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import { TarReader } from "#core/tar/reader.ts";
import { CliError, hasCode } from "./cli-error.ts";

/** What is taken over beyond contents, permission bits, times and links that stay inside. */
export interface UntarOptions {
  /** Owners by number, and setuid, setgid and sticky bits. */
  readonly archive: boolean;
  /** Also symbolic links that lead out of the tree. */
  readonly allLinks: boolean;
}

/** What came, and what was left out. */
export interface Untarred {
  readonly entries: number;
  readonly bytes: number;
  /** Symbolic links that lead out of the tree. */
  readonly linksLeftOut: number;
  /** FIFOs and devices. */
  readonly specialLeftOut: number;
}

/** Entries of one tree: what they are is held in memory. */
const ENTRIES_LIMIT = 2_000_000;

/**
 * Unpacks a tree that a sandbox made to `target`, which must not exist. The archive is hostile: everything goes into a fresh directory
 * beside the target, of which only this user has the rights; each entry must lie in a directory that the archive itself made before, no
 * name comes twice, and nothing is ever opened that was there. The directory gets its name when the tree is whole; else nothing is left.
 */
export async function untar(
  source: AsyncIterable<Uint8Array>,
  target: Buffer,
  options: UntarOptions,
): Promise<Untarred> {
  const folder = Buffer.concat([target, Buffer.from(`.part-${randomBytes(8).toString("hex")}`)]);
  writing(target, () => mkdirSync(folder, 0o700));
  try {
    const sink = new DiskSink(folder, options);
    const reader = new TarReader(sink, { sparse: true });
    for await (const chunk of source) writing(target, () => reader.push(chunk));
    reader.finish();
    writing(target, () => {
      sink.finish();
      // The folder is full by now: it takes the place of nothing but an empty directory.
      renameSync(folder, target);
    });
    return sink.result;
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

interface Made {
  readonly path: Buffer;
  readonly entry: TreeEntry;
}

class DiskSink implements EntrySink {
  readonly #root: Buffer;
  readonly #options: UntarOptions;
  /** What the archive has made, by its path in it. */
  readonly #kinds = new Map<string, "directory" | "file" | "other">([["", "directory"]]);
  readonly #directories: Made[] = [];
  #file: { readonly fd: number; readonly entry: TreeEntry; extent: number; at: number } | undefined;
  #bytes = 0;
  #linksLeftOut = 0;
  #specialLeftOut = 0;

  constructor(root: Buffer, options: UntarOptions) {
    this.#root = root;
    this.#options = options;
  }

  get result(): Untarred {
    const { size: entries } = this.#kinds;
    return { entries, bytes: this.#bytes, linksLeftOut: this.#linksLeftOut, specialLeftOut: this.#specialLeftOut };
  }

  entry(entry: TreeEntry): void {
    this.#endFile();
    const parts = components(entry.path);
    const name = parts.join("/");
    const path = this.#pathOf(name);
    if (name === "" && entry.type === "directory") {
      this.#directories.push({ path, entry });
      return;
    }
    if (this.#kinds.get(parts.slice(0, -1).join("/")) !== "directory") {
      throw badInput(`the sandbox sent ${shown(entry.path)}, which lies in no directory of the tree`);
    }
    if (this.#kinds.has(name) || name === "") throw badInput(`the sandbox sent ${shown(entry.path)} twice`);
    if (this.#kinds.size >= ENTRIES_LIMIT) throw badInput(`the tree has more than ${ENTRIES_LIMIT} entries`);
    this.#make(entry, name, path);
  }

  data(bytes: Uint8Array): void {
    const file = this.#file;
    if (file === undefined) return;
    const extents = file.entry.extents ?? [{ offset: 0, size: file.entry.size }];
    for (let done = 0; done < bytes.length; ) {
      const extent = extents[file.extent];
      if (extent === undefined) throw badInput("the sandbox sent a file that is longer than it said");
      const some = Math.min(bytes.length - done, extent.size - file.at);
      if (some === 0) {
        file.extent += 1;
        file.at = 0;
        continue;
      }
      const wrote = writeSync(file.fd, bytes, done, some, extent.offset + file.at);
      done += wrote;
      file.at += wrote;
    }
    this.#bytes += bytes.length;
  }

  /** Directories last: what is put into one changes its time, and its mode may forbid to put anything. */
  finish(): void {
    this.#endFile();
    for (const { path, entry } of this.#directories.reverse()) {
      if (this.#options.archive) chownSync(path, entry.uid, entry.gid);
      chmodSync(path, this.#modeOf(entry));
      utimesSync(path, timeOf(entry), timeOf(entry));
    }
  }

  #make(entry: TreeEntry, name: string, path: Buffer): void {
    switch (entry.type) {
      case "directory":
        mkdirSync(path, 0o700);
        this.#directories.push({ path, entry });
        break;
      case "file":
        this.#beginFile(entry, path);
        break;
      case "symlink":
        if (!this.#options.allLinks && this.#leadsOut(name, entry.target)) {
          this.#linksLeftOut += 1;
          return;
        }
        symlinkSync(Buffer.from(entry.target, "latin1"), path);
        if (this.#options.archive) lchownSync(path, entry.uid, entry.gid);
        lutimesSync(path, timeOf(entry), timeOf(entry));
        break;
      case "link": {
        const first = components(entry.target).join("/");
        if (this.#kinds.get(first) !== "file") {
          throw badInput(`the sandbox sent ${shown(entry.path)} as a further name of what is no file of the tree`);
        }
        linkSync(this.#pathOf(first), path);
        break;
      }
      default:
        this.#specialLeftOut += 1;
        return;
    }
    this.#kinds.set(name, entry.type === "directory" ? "directory" : entry.type === "symlink" ? "other" : "file");
  }

  #beginFile(entry: TreeEntry, path: Buffer): void {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    this.#file = { fd: openSync(path, flags, 0o600), entry, extent: 0, at: 0 };
  }

  #endFile(): void {
    const file = this.#file;
    this.#file = undefined;
    if (file === undefined) return;
    const { fd, entry } = file;
    try {
      // A hole at the end has no bytes of its own: the last byte makes the file as long as it is.
      if (entry.extents !== undefined && entry.size > 0) writeHole(fd, entry);
      if (this.#options.archive) fchownSync(fd, entry.uid, entry.gid);
      fchmodSync(fd, this.#modeOf(entry));
      futimesSync(fd, timeOf(entry), timeOf(entry));
    } finally {
      closeSync(fd);
    }
  }

  /**
   * True when the target of a link at `name` is absolute or can lead above the root. Only from a directory of the tree is it known
   * where `..` leads: any other name is a link, or may become one.
   */
  #leadsOut(name: string, target: string): boolean {
    if (target.startsWith("/")) return true;
    const at = name.split("/").slice(0, -1);
    for (const part of target.split("/")) {
      if (part === "" || part === ".") continue;
      if (part !== "..") at.push(part);
      else if (this.#kinds.get(at.join("/")) !== "directory" || at.pop() === undefined) return true;
    }
    return false;
  }

  #pathOf(name: string): Buffer {
    return name === "" ? this.#root : Buffer.concat([this.#root, Buffer.from("/"), Buffer.from(name, "latin1")]);
  }

  #modeOf({ mode }: TreeEntry): number {
    return mode & (this.#options.archive ? 0o7777 : 0o777);
  }
}

function writeHole(fd: number, { extents = [], size }: TreeEntry): void {
  const last = extents.at(-1);
  if (last !== undefined && last.offset + last.size === size && last.size > 0) return;
  writeSync(fd, Buffer.alloc(1), 0, 1, size - 1);
}

function timeOf({ mtimeS, mtimeNs }: TreeEntry): number {
  return mtimeS + mtimeNs / 1e9;
}

function writing<T>(target: Buffer, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (hasCode(error, "EEXIST", "ENOTEMPTY", "ENOTDIR", "EISDIR")) {
      throw new CliError("AlreadyExists", `${target} is there already`, {
        cause: error,
        hint: "name a path that is free",
      });
    }
    if (hasCode(error, "EPERM", "EACCES", "ENOENT", "EROFS", "ENOSPC", "EDQUOT", "ENAMETOOLONG", "EINVAL")) {
      throw new CliError("FailedPrecondition", `${target} cannot be written: ${(error as Error).message}`, {
        cause: error,
      });
    }
    throw error;
  }
}
