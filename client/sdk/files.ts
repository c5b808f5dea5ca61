import { createHash } from "node:crypto";
import type { FileView, FileWrittenView, TreeWrittenView, WatchView } from "#api/index.ts";
import { type Call, type Caller, type CallOptions, concat } from "./caller.ts";
import { DsecError } from "./errors.ts";
import { lines } from "./lines.ts";
import { type WatchOptions, watchFiles } from "./watch.ts";

/** A path inside the sandbox, absolute; as bytes where it is not UTF-8. */
export type SandboxPath = string | Uint8Array;

/** What every file operation takes. */
export interface FileOptions extends CallOptions {
  /** With whose rights, and who owns what is made; the sandbox's user unless said otherwise. */
  readonly user?: string;
}

/** What a write takes. */
export interface WriteOptions extends FileOptions {
  /** Permission bits, 0o644 unless said otherwise. */
  readonly mode?: number;
  /** Makes missing parent directories. */
  readonly parents?: boolean;
}

/** What a read takes. */
export interface ReadOptions extends FileOptions {
  readonly offset?: number;
  readonly length?: number;
}

/** What unpacking a tree takes. */
export interface WriteTreeOptions extends FileOptions {
  /** Entries get the owners that the archive names; true unless said otherwise. False: all belong to the user. */
  readonly owners?: boolean;
}

/** What a list takes. */
export interface ListFilesOptions extends FileOptions {
  /** Levels to list, 1 unless said otherwise, 64 at most; names of deeper entries are paths below the directory. */
  readonly depth?: number;
  /** False leaves out names that begin with a dot, and what is in such directories. */
  readonly hidden?: boolean;
}

/** What a move takes. */
export interface MoveOptions extends FileOptions {
  /** May it take the place of a file, or of an empty directory? True unless said otherwise. */
  readonly replace?: boolean;
  /** Makes missing directories above the new name. */
  readonly parents?: boolean;
}

/** Bytes of a file that `read` collects at most; stream bigger ones. */
const MAX_COLLECTED_BYTES = 1024 * 1024 * 1024;

/** The files of one sandbox. */
export class Files {
  readonly #caller: Caller;
  readonly #path: string;

  /** Made by `Sandbox`. */
  constructor(caller: Caller, sandboxPath: string) {
    this.#caller = caller;
    this.#path = `${sandboxPath}/files`;
  }

  /** A file's bytes as they come, at the pace of the reader. Throws at the end when they are not what was read. */
  stream(path: SandboxPath, options: ReadOptions = {}): AsyncGenerator<Uint8Array> {
    const { offset, length, user } = options;
    return this.#checked("", { path, offset, length, user }, options);
  }

  /**
   * A directory and all that is below it, or one file, as a tar archive: modes, owners, times, links, holes. Other file systems
   * mounted below are empty directories in it; sockets and devices are left out. Throws at the end when it is not what was sent.
   */
  readTree(path: SandboxPath, options: FileOptions = {}): AsyncGenerator<Uint8Array> {
    return this.#checked("/tree", { path, user: options.user }, options);
  }

  /**
   * Unpacks a tar archive below a directory, which is made when it is missing. Nothing is put outside of it or through a link. What was
   * put before a failure stays.
   */
  async writeTree(
    path: SandboxPath,
    archive: Uint8Array | AsyncIterable<Uint8Array>,
    options: WriteTreeOptions = {},
  ): Promise<TreeWrittenView> {
    const { owners, user } = options;
    const sent = new Digest();
    const written = await this.#caller.json<TreeWrittenView>({
      ...callOf(options),
      method: "PUT",
      path: `${this.#path}/tree`,
      query: { path, owners, user },
      bytes: archive instanceof Uint8Array ? sent.take(archive) : sent.through(archive),
      repeatable: true,
    });
    check("written", written, sent.result());
    return written;
  }

  /**
   * What happens in a directory, or to a file, until it is gone. The first event is `ready`: everything from there on is told. A connection
   * that breaks is made again, and shows as `overflow`: what happened meanwhile is not known.
   */
  watch(path: SandboxPath, options: WatchOptions = {}): AsyncGenerator<WatchView> {
    return watchFiles(this.#caller, `${this.#path}/watch`, path, options);
  }

  async *#checked(call: string, query: Call["query"], options: CallOptions): AsyncGenerator<Uint8Array> {
    const reply = await this.#caller.open({ ...callOf(options), method: "GET", path: `${this.#path}${call}`, query });
    const received = new Digest();
    try {
      yield* received.through(reply.body);
      check("read", received.result(), {
        size: Number(reply.trailer("x-dsec-size")),
        sha256: reply.trailer("x-dsec-sha256"),
      });
    } finally {
      reply.discard();
    }
  }

  /** A whole file, or the asked part of it. */
  async read(path: SandboxPath, options: ReadOptions = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const bytes of this.stream(path, options)) {
      size += bytes.byteLength;
      if (size > MAX_COLLECTED_BYTES) {
        throw new DsecError("TooLarge", `a file of more than ${MAX_COLLECTED_BYTES} bytes`, { hint: "stream it" });
      }
      chunks.push(bytes);
    }
    return concat(chunks);
  }

  /** A whole file as UTF-8; bytes that are not become U+FFFD. */
  async readText(path: SandboxPath, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** Replaces a file, atomically: the old one stays until all bytes have arrived. Size and digest are checked. */
  async write(
    path: SandboxPath,
    data: string | Uint8Array | AsyncIterable<Uint8Array>,
    options: WriteOptions = {},
  ): Promise<FileWrittenView> {
    const sent = new Digest();
    const whole = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const written = await this.#caller.json<FileWrittenView>({
      ...callOf(options),
      method: "PUT",
      path: this.#path,
      query: { path, mode: octal(options.mode), parents: options.parents, user: options.user },
      bytes: whole instanceof Uint8Array ? sent.take(whole) : sent.through(whole),
      repeatable: true,
    });
    check("written", written, sent.result());
    return written;
  }

  /** The entries of a directory, without `.` and `..`; links as links. */
  async list(path: SandboxPath, options: ListFilesOptions = {}): Promise<readonly FileView[]> {
    const entries: FileView[] = [];
    for await (const entry of this.entries(path, options)) entries.push(entry);
    return entries;
  }

  /** The same as they come: a directory of any size takes no memory. */
  async *entries(path: SandboxPath, options: ListFilesOptions = {}): AsyncGenerator<FileView> {
    const { depth, hidden, user } = options;
    const reply = await this.#caller.open({
      ...callOf(options),
      method: "GET",
      path: `${this.#path}/list`,
      query: { path, depth, hidden, user },
    });
    try {
      for await (const line of lines(reply.body)) yield JSON.parse(line) as FileView;
    } finally {
      reply.discard();
    }
  }

  /** One entry; a link as a link. */
  stat(path: SandboxPath, options: FileOptions = {}): Promise<FileView> {
    const query = { path, user: options.user };
    return this.#caller.json({ ...callOf(options), method: "GET", path: `${this.#path}/stat`, query });
  }

  /** Makes a directory. */
  mkdir(path: SandboxPath, options: WriteOptions = {}): Promise<void> {
    const { mode, parents, user } = options;
    return this.#change("POST", "/mkdir", { path, mode: octal(mode), parents, user }, options);
  }

  /** Removes a file or an empty directory; with `recursive` a whole tree, never following a link. */
  remove(path: SandboxPath, options: FileOptions & { readonly recursive?: boolean } = {}): Promise<void> {
    const { recursive, user } = options;
    return this.#change("DELETE", "", { path, recursive, user }, options);
  }

  /** Gives other permission bits; a link is followed. */
  chmod(path: SandboxPath, mode: number, options: FileOptions = {}): Promise<void> {
    return this.#change("POST", "/chmod", { path, mode: octal(mode), user: options.user }, options);
  }

  /** Gives another owner: `name`, `uid`, `name:group` or `uid:gid`; a link is followed. */
  chown(path: SandboxPath, owner: string, options: FileOptions = {}): Promise<void> {
    return this.#change("POST", "/chown", { path, owner, user: options.user }, options);
  }

  /** Makes a symbolic link at `path` that says `target`, whatever that leads to. */
  symlink(
    path: SandboxPath,
    target: SandboxPath,
    options: FileOptions & { readonly parents?: boolean } = {},
  ): Promise<void> {
    const { parents, user } = options;
    return this.#change("POST", "/symlink", { path, target, parents, user }, options);
  }

  /** Gives an entry another name, at once: nobody ever sees both or none. */
  move(path: SandboxPath, to: SandboxPath, options: MoveOptions = {}): Promise<void> {
    const { replace, parents, user } = options;
    return this.#change("POST", "/move", { path, to, replace, parents, user }, options);
  }

  async #change(method: "POST" | "DELETE", call: string, query: Call["query"], options: CallOptions): Promise<void> {
    await this.#caller.json({ ...callOf(options), method, path: `${this.#path}${call}`, query });
  }
}

/** What passes on this side. */
class Digest {
  readonly #hash = createHash("sha256");
  #size = 0;

  take(bytes: Uint8Array): Uint8Array {
    this.#hash.update(bytes);
    this.#size += bytes.byteLength;
    return bytes;
  }

  async *through(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const bytes of source) yield this.take(bytes);
  }

  result(): FileWrittenView {
    return { size: this.#size, sha256: this.#hash.digest("hex") };
  }
}

/** The two ends of a transfer say the same, or it has failed. */
function check(
  what: string,
  found: FileWrittenView,
  wanted: { readonly size: number; readonly sha256: string | undefined },
): void {
  if (found.size === wanted.size && found.sha256 === wanted.sha256) return;
  throw new DsecError("Internal", `the bytes ${what} are not the bytes sent`, {
    hint: "try again; something on the way changes bytes",
    details: { size: found.size, sha256: found.sha256 },
  });
}

function octal(mode: number | undefined): string | undefined {
  return mode?.toString(8);
}

function callOf(options: CallOptions): CallOptions {
  return { signal: options.signal, timeoutMs: options.timeoutMs };
}
