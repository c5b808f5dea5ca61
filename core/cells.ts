import { SandboxError } from "#core/errors.ts";

/**
 * What edge and keeper say to each other, one call after the other. A request, on the keeper's stdin; integers are little-endian:
 *
 *     offset  size  field
 *          0     8  processor time, µs          32  8  bytes of all wanted files     52  4  files that follow
 *          8     8  wall time, µs               40  8  bytes of input                56  4  bytes of argv
 *         16     8  bytes of memory             48  4  processes                     60  4  bytes of env
 *         24     8  bytes of each output                                             64  4  bytes of wanted names, then zero
 *         72     -  argv, env (`NAME=value`), wanted names: texts, each with its NUL; at most a MiB
 *          -     -  files: u32 mode, u32 bytes of the name, u64 bytes, name, bytes
 *          -     -  input
 *
 * The result, on its stdout: parts of u8 type, 3 zeros, u32 size, and so many bytes.
 *
 *     1 stdout · 2 stderr · 3 file: u32 mode, u32 state (0 whole, 1 missing, 2 too large), u64 bytes, name · 4 data of the file before
 *     5 end: u8 verdict, u8 clean, u16 zero, i32 status as of wait(2), u64 wall µs, u64 processor µs, u64 peak bytes, u32 errno
 *     6 refused: u32 errno: nothing was run
 *     7 ready: the next request may come, for a cell that nobody has been in
 *
 * `end` comes when every process of the cell has ended and what it wrote is collected. `clean`: nobody is in its cgroups any more.
 * Input that the program did not read is read by the keeper. After a refusal, and after the last call that it may serve, it ends.
 */
const HEAD_BYTES = 72;
const FILE_HEAD_BYTES = 16;
const PART_HEAD_BYTES = 8;
const END_BYTES = 36;
/** Longer parts are none. */
const PART_LIMIT_BYTES = 64 * 1024 + 8;
/** All texts of a request together. */
const CELL_TEXTS_LIMIT_BYTES = 1024 * 1024;

/** What a call may use. The keeper ends it at the first of these. */
export interface CellLimits {
  readonly cpuMs: number;
  readonly wallMs: number;
  readonly memoryBytes: number;
  /** Of stdout and of stderr each. */
  readonly outputBytes: number;
  /** Of all wanted files together. */
  readonly fileBytes: number;
  readonly pids: number;
}

/** A file below the directory that a call begins in. */
export interface CellFile {
  readonly name: string;
  readonly mode: number;
  readonly bytes: Uint8Array;
}

/** One call of a program in a cell. */
export interface CellRequest {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly files: readonly CellFile[];
  readonly input: Uint8Array;
  /** Names of files to fetch after its end. */
  readonly wanted: readonly string[];
  readonly limits: CellLimits;
}

/** Why a call ended: by itself, at a limit, because the keeper could not go on, or before it began: there is no such program. */
const CELL_VERDICTS = ["ended", "cpu", "wall", "output", "memory", "fault", "unrunnable"] as const;
export type CellVerdict = (typeof CELL_VERDICTS)[number];

/** What became of a call. */
export interface CellResult {
  readonly verdict: CellVerdict;
  /** False: something may be left of the call, and the container must not be used again. */
  readonly clean: boolean;
  /** Present exactly when the program exited by itself. */
  readonly code: number | undefined;
  /** Number of the signal that ended it. */
  readonly signal: number | undefined;
  /** Why the program could not be run. */
  readonly errno: number | undefined;
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly peakBytes: number;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly files: readonly CellFile[];
  /** Wanted files that there are none of, and those beyond the limit. */
  readonly missing: readonly string[];
  readonly tooLarge: readonly string[];
}

/** The request as pieces to send in this order. Throws `InvalidArgument` for what no program could be given. */
export function encodeCellRequest(request: CellRequest): Uint8Array[] {
  const argv = texts("argument", request.argv);
  const env = texts(
    "variable",
    Object.entries(request.env).map(([name, value]) => `${name}=${value}`),
  );
  const wanted = texts("name", request.wanted);
  if (argv.length + env.length + wanted.length > CELL_TEXTS_LIMIT_BYTES) {
    throw new SandboxError("InvalidArgument", "arguments and environment of a call of more than a MiB", {
      hint: "pass the data in a file or as input",
    });
  }
  const { limits, files, input } = request;
  const head = Buffer.alloc(HEAD_BYTES);
  const long = [limits.cpuMs * 1000, limits.wallMs * 1000, limits.memoryBytes, limits.outputBytes, limits.fileBytes];
  for (const [index, value] of [...long, input.length].entries())
    head.writeBigUInt64LE(BigInt(Math.round(value)), 8 * index);
  for (const [index, value] of [limits.pids, files.length, argv.length, env.length, wanted.length].entries()) {
    head.writeUInt32LE(value, 48 + 4 * index);
  }
  const bodies = files.flatMap((file) => [fileHead(file), file.bytes]);
  return [Buffer.concat([head, argv, env, wanted]), ...bodies, input].filter(({ length }) => length > 0);
}

function fileHead({ name, mode, bytes }: CellFile): Buffer {
  const text = Buffer.from(name);
  const head = Buffer.alloc(FILE_HEAD_BYTES);
  head.writeUInt32LE(mode, 0);
  head.writeUInt32LE(text.length, 4);
  head.writeBigUInt64LE(BigInt(bytes.length), 8);
  return Buffer.concat([head, text]);
}

function texts(what: string, values: readonly string[]): Buffer {
  for (const value of values) {
    if (value.includes("\0")) throw new SandboxError("InvalidArgument", `a NUL byte in a ${what}`);
  }
  return Buffer.from(values.map((value) => `${value}\0`).join(""));
}

/** What a keeper says: how a call ended, or that it can take another. */
export type CellNews = { readonly type: "result"; readonly result: CellResult } | { readonly type: "ready" };

interface FileUnderWay {
  readonly name: string;
  readonly mode: number;
  readonly pieces: Uint8Array[];
}

/** Reads what a keeper says out of chunks that may be cut anywhere. */
export class CellResultReader {
  #rest: Buffer = Buffer.alloc(0);
  #outputs: { readonly stdout: Uint8Array[]; readonly stderr: Uint8Array[] } = { stdout: [], stderr: [] };
  #files: FileUnderWay[] = [];
  #missing: string[] = [];
  #tooLarge: string[] = [];
  #leftBytes = 0;

  /** A call begins whose result has at most what it asked for. */
  expect({ limits, wanted }: Pick<CellRequest, "limits" | "wanted">): void {
    const texts = CELL_TEXTS_LIMIT_BYTES + wanted.length * FILE_HEAD_BYTES;
    this.#leftBytes = 2 * limits.outputBytes + limits.fileBytes + texts + END_BYTES;
  }

  /** What is whole by now. Throws `Internal` for what no keeper says, `SandboxLimit` when it refused the request. */
  push(chunk: Uint8Array): readonly CellNews[] {
    const news: CellNews[] = [];
    let rest = this.#rest.length === 0 ? Buffer.from(chunk) : Buffer.concat([this.#rest, chunk]);
    while (rest.length >= PART_HEAD_BYTES) {
      const size = rest.readUInt32LE(4);
      if (size > PART_LIMIT_BYTES) throw malformed(`a part of ${size} bytes`);
      if (rest.length < PART_HEAD_BYTES + size) break;
      const said = this.#take(rest[0] ?? 0, rest.subarray(PART_HEAD_BYTES, PART_HEAD_BYTES + size));
      if (said !== undefined) news.push(said);
      rest = rest.subarray(PART_HEAD_BYTES + size);
    }
    this.#rest = rest;
    return news;
  }

  #take(type: number, part: Buffer): CellNews | undefined {
    this.#leftBytes -= part.length;
    if (this.#leftBytes < 0) throw malformed("more than its call may print and return");
    if (type === 1) this.#outputs.stdout.push(part);
    else if (type === 2) this.#outputs.stderr.push(part);
    else if (type === 3) this.#file(part);
    else if (type === 4) this.#files.at(-1)?.pieces.push(part);
    else if (type === 5) return { type: "result", result: this.#end(part) };
    else if (type === 6) throw refused(part.readUInt32LE(0));
    else if (type === 7) return { type: "ready" };
    else throw malformed(`a part of type ${type}`);
    return undefined;
  }

  #file(part: Buffer): void {
    const name = part.toString("utf8", FILE_HEAD_BYTES);
    const state = part.readUInt32LE(4);
    if (state === 1) this.#missing.push(name);
    else if (state === 2) this.#tooLarge.push(name);
    else this.#files.push({ name, mode: part.readUInt32LE(0), pieces: [] });
  }

  #end(part: Buffer): CellResult {
    const verdict = CELL_VERDICTS[part[0] ?? 0];
    if (part.length !== END_BYTES || verdict === undefined) throw malformed("an end that is none");
    const status = part.readInt32LE(4);
    const signal = status & 0x7f;
    const [outputs, files, missing, tooLarge] = [this.#outputs, this.#files, this.#missing, this.#tooLarge];
    this.#outputs = { stdout: [], stderr: [] };
    [this.#files, this.#missing, this.#tooLarge] = [[], [], []];
    return {
      verdict,
      clean: part[1] === 1,
      code: signal === 0 ? (status >> 8) & 0xff : undefined,
      signal: signal === 0 ? undefined : signal,
      errno: part.readUInt32LE(32) === 0 ? undefined : part.readUInt32LE(32),
      wallMs: Number(part.readBigUInt64LE(8)) / 1000,
      cpuMs: Number(part.readBigUInt64LE(16)) / 1000,
      peakBytes: Number(part.readBigUInt64LE(24)),
      stdout: Buffer.concat(outputs.stdout),
      stderr: Buffer.concat(outputs.stderr),
      files: files.map(({ name, mode, pieces }) => ({ name, mode, bytes: Buffer.concat(pieces) })),
      missing,
      tooLarge,
    };
  }
}

function malformed(what: string): SandboxError {
  return new SandboxError("Internal", `the keeper of a cell sent ${what}`);
}

function refused(errno: number): SandboxError {
  return new SandboxError("SandboxLimit", `the cell cannot take the call (errno ${errno})`, {
    hint: "send fewer or smaller files",
    details: { errno },
  });
}
