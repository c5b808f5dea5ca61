import { SandboxError } from "#core/errors.ts";
import type { FileType } from "#core/sandbox.ts";
import type { Extent } from "#core/tree.ts";

/** Names, link targets and attribute names are bytes: strings of one character (0 to 255) a byte, as in `latin1`. */
export type ByteString = string;

/** What every file has, whatever it is. */
export interface Attributes {
  /** Permission bits with setuid, setgid and sticky: 0 to 0o7777. */
  mode: number;
  uid: number;
  gid: number;
  /** Seconds since 1970, may be negative; `mtimeNs` counts up from it. */
  mtimeS: number;
  mtimeNs: number;
  xattrs: ReadonlyMap<ByteString, Uint8Array> | undefined;
}

/** One member of an archive or one file of a walked directory, before it has a place in a tree. */
export interface TreeEntry extends Attributes {
  /** As found: may be absolute or hold `.` and `..`; the tree decides. */
  readonly path: ByteString;
  /** `link` is a further name of an earlier entry. */
  readonly type: FileType | "link";
  /** Bytes of a file, holes included. */
  readonly size: number;
  /** Of a sparse file: what is no hole, in order; only these bytes follow. */
  readonly extents?: readonly Extent[];
  /** Target of a symbolic link, or path of the entry that a link names. */
  readonly target: ByteString;
  readonly major: number;
  readonly minor: number;
}

/** Takes a tree entry by entry. After a file's entry exactly its bytes come, in any number of pieces. */
export interface EntrySink {
  entry(entry: TreeEntry): void;
  data(bytes: Uint8Array): void;
}

/** A byte string as people read it in a message: UTF-8 where it is, quoted, and cut. */
export function shown(path: ByteString): string {
  const text = Buffer.from(path, "latin1").toString("utf8");
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}

/** The bytes of a path as the system gives them. */
export function byteString(bytes: Uint8Array): ByteString {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** An `InvalidArgument` about the input: what is wrong and, if there is one, the way out. */
export function badInput(message: string, hint?: string, cause?: unknown): SandboxError {
  return new SandboxError("InvalidArgument", message, {
    ...(hint === undefined ? {} : { hint }),
    ...(cause === undefined ? {} : { cause }),
  });
}
