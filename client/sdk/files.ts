import type { FileView, FileWrittenView } from "#api/index.ts";
import { type Caller, type CallOptions, readAll } from "./caller.ts";
import { DsecError } from "./errors.ts";

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

  /** A file's bytes as they come, at the pace of the reader. */
  async *stream(path: SandboxPath, options: ReadOptions = {}): AsyncGenerator<Uint8Array> {
    const reply = await this.#open(path, options);
    try {
      yield* reply.body;
    } finally {
      reply.discard();
    }
  }

  /** A whole file, or the asked part of it. */
  async read(path: SandboxPath, options: ReadOptions = {}): Promise<Uint8Array> {
    return readAll(await this.#open(path, options), MAX_COLLECTED_BYTES);
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
    let size = 0;
    const counted = async function* (source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
      for await (const chunk of source) {
        size += chunk.byteLength;
        yield chunk;
      }
    };
    const whole = typeof data === "string" ? new TextEncoder().encode(data) : data;
    if (whole instanceof Uint8Array) size = whole.byteLength;
    const written = await this.#caller.json<FileWrittenView>({
      ...callOf(options),
      method: "PUT",
      path: this.#path,
      query: { path, mode: octal(options.mode), parents: options.parents, user: options.user },
      bytes: whole instanceof Uint8Array ? whole : counted(whole),
      repeatable: true,
    });
    if (written.size !== size) {
      throw new DsecError("Internal", `${size} bytes were sent and ${written.size} written`, {
        hint: "write it again",
      });
    }
    return written;
  }

  /** The entries of a directory, without `.` and `..`; links as links. */
  async list(path: SandboxPath, options: FileOptions = {}): Promise<readonly FileView[]> {
    const reply = await this.#caller.json<{ readonly entries: readonly FileView[] }>({
      ...callOf(options),
      method: "GET",
      path: `${this.#path}/list`,
      query: { path, user: options.user },
    });
    return reply.entries;
  }

  /** One entry; a link as a link. */
  stat(path: SandboxPath, options: FileOptions = {}): Promise<FileView> {
    const query = { path, user: options.user };
    return this.#caller.json({ ...callOf(options), method: "GET", path: `${this.#path}/stat`, query });
  }

  /** Makes a directory. */
  async mkdir(path: SandboxPath, options: WriteOptions = {}): Promise<void> {
    await this.#caller.json({
      ...callOf(options),
      method: "POST",
      path: `${this.#path}/mkdir`,
      query: { path, mode: octal(options.mode), parents: options.parents, user: options.user },
    });
  }

  /** Removes a file or an empty directory; with `recursive` a whole tree, never following a link. */
  async remove(path: SandboxPath, options: FileOptions & { readonly recursive?: boolean } = {}): Promise<void> {
    await this.#caller.json({
      ...callOf(options),
      method: "DELETE",
      path: this.#path,
      query: { path, recursive: options.recursive, user: options.user },
    });
  }

  #open(path: SandboxPath, options: ReadOptions) {
    const { offset, length, user } = options;
    return this.#caller.open({
      ...callOf(options),
      method: "GET",
      path: this.#path,
      query: { path, offset, length, user },
    });
  }
}

function octal(mode: number | undefined): string | undefined {
  return mode?.toString(8);
}

function callOf(options: CallOptions): CallOptions {
  return { signal: options.signal, timeoutMs: options.timeoutMs };
}
