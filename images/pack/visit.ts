import type { BigIntStats } from "node:fs";
import type { ByteString, TreeEntry } from "#core/tar/entry.ts";
import type { Extent } from "#core/tree.ts";
import type { Names } from "./patterns.ts";

/** What a file is, as the system tells, or who reads a file system in its place. Numbers of files are unique in a walk. */
export type FileStats = Pick<
  BigIntStats,
  "ino" | "nlink" | "size" | "rdev" | "isFile" | "isDirectory" | "isSocket" | "isCharacterDevice" | "isBlockDevice"
>;

/** One name that a walk came by. */
export interface Found {
  /** From the root down, its own last; the root has none. */
  readonly names: Names;
  readonly stats: FileStats;
}

/** The data of a file, until its visit ends. */
export interface FileBytes {
  /** What is no hole, in order. */
  extents(): Iterable<Extent> | AsyncIterable<Extent>;
  /** Fills a buffer as far as there is data; resolves with how far. */
  read(into: Uint8Array, offset: number): number | Promise<number>;
}

/** One that is visited. */
export interface Taken<T> extends Found {
  readonly entry: TreeEntry;
  /** Of a file; undefined when its data was read already. */
  readonly file: FileBytes | undefined;
  /** All data of a file, if it was read. */
  readonly data: Uint8Array | undefined;
  /** What was made of the directory that holds it. The root has none. */
  readonly above: T | undefined;
}

/** What is done with a tree. */
export interface Visitor<T> {
  /** Whether a name is visited, and what is below it. Asked once, in the order of visits, and earlier than that. */
  takes(found: Found): boolean;
  /** Returns what those below will be visited with. */
  visit(taken: Taken<T>): Promise<T>;
}

/** A tree that can be walked: visits the root and everything below it, each directory before what is in it. */
export type Walk = <T>(visitor: Visitor<T>, signal: AbortSignal) => Promise<void>;

/** As many names as a message is the better for. */
const SHOWN_NAMES = 16;

/** The path of an entry is for messages: of a deep one it is the end. */
export function shownPath(names: Names): ByteString {
  return names.slice(-SHOWN_NAMES).join("/");
}
