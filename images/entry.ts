import { SandboxError } from "#core/errors.ts";
import type { FileType } from "#core/sandbox.ts";
import type { Attributes, ByteString } from "./erofs/inode.ts";

/** One member of an archive or one file of a walked directory, before it has a place in a tree. */
export interface TreeEntry extends Attributes {
  /** As found: may be absolute or hold `.` and `..`; the tree decides. */
  readonly path: ByteString;
  /** `link` is a further name of an earlier entry. */
  readonly type: FileType | "link";
  /** Bytes of data that follow, for files. */
  readonly size: number;
  /** Target of a symbolic link, or path of the entry that a link names. */
  readonly target: ByteString;
  readonly major: number;
  readonly minor: number;
}

/** Takes a tree entry by entry. After a file's entry exactly `size` bytes of data come, in any number of pieces. */
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
