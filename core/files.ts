import type { SandboxId } from "#core/ids.ts";
import type { FileInfo } from "#core/sandbox.ts";

/**
 * What a node does with files. Every path is seen from inside the sandbox, with the rights of a user of the sandbox and under its
 * limits: whatever links, mounts or races there are, they lead to nothing that a program of that user could not reach.
 */
export interface NodeFiles {
  /**
   * The bytes of a file, then, as the last item, what they were. Ends early only by an error. The bytes of a piece are the
   * reader's until it asks for the next.
   */
  readFile(id: SandboxId, read: FileRead, signal: AbortSignal): AsyncIterable<Uint8Array | FileDigest>;
  /** Atomic: the old file stays until all bytes have arrived. */
  writeFile(
    id: SandboxId,
    write: FileWrite,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<FileDigest>;
  /** Entries of a directory, without `.` and `..`, links as links; batches of them, in the order of the file system. */
  listFiles(id: SandboxId, list: FileList, signal: AbortSignal): AsyncIterable<readonly FileInfo[]>;
  /** One entry; a final link is not followed. */
  stat(id: SandboxId, target: FileTarget, signal: AbortSignal): Promise<FileInfo>;
  /** Resolves when the change is made; it is made whole or, but for removals of trees, not at all. */
  changeFile(id: SandboxId, change: FileChange, signal: AbortSignal): Promise<void>;
  /** A directory and all below it, or one file, in the coding of `tree.ts`. A piece is the reader's until it asks for the next. */
  readTree(id: SandboxId, target: FileTarget, signal: AbortSignal): AsyncIterable<Uint8Array>;
  /** Puts the entries of a stream in that coding below a directory. What was put before a failure stays. */
  writeTree(id: SandboxId, write: TreeWrite, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void>;
  /** What happens there, in the coding of `watch.ts`, until the path is gone. A piece is the reader's until it asks for the next. */
  watchFiles(id: SandboxId, watch: FileWatch, signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** A path in a sandbox, and who asks for it; `user` undefined: the sandbox's own. */
export interface FileTarget {
  /** Absolute, as bytes. */
  readonly path: Uint8Array;
  readonly user: string | undefined;
}

/** Part of a file: `length` undefined reads to its end. */
export interface FileRead extends FileTarget {
  readonly offset: number;
  readonly length: number | undefined;
}

/** Where written bytes go. */
export interface FileWrite extends FileTarget {
  readonly mode: number;
  /** Makes missing parent directories. */
  readonly parents: boolean;
}

/** Where a tree goes. The directory is made when it is missing, with those above it. */
export interface TreeWrite extends FileTarget {
  /** True: entries get the owners that the tree names. False: the user's. */
  readonly owners: boolean;
}

/** What to watch; `recursive`: directories below as well, those to come included. */
export interface FileWatch extends FileTarget {
  readonly recursive: boolean;
}

/** Which entries: with a depth above 1 also those of the directories below, by their path from the directory on. */
export interface FileList extends FileTarget {
  readonly depth: number;
  /** False leaves out names that begin with a dot, and what is in such directories. */
  readonly hidden: boolean;
}

/** Levels that one list can span; each keeps a directory open in the sandbox. */
export const LIST_DEPTH_LIMIT = 64;

/** What is done to one path. Links at its end are followed by `chmod` and `chown` only. */
export type FileChange = FileTarget &
  (
    | { readonly type: "mkdir"; readonly mode: number; readonly parents: boolean }
    /** `recursive` removes trees and never follows a link; without it only files and empty directories go. */
    | { readonly type: "remove"; readonly recursive: boolean }
    | { readonly type: "chmod"; readonly mode: number }
    /** `owner`: `name`, `uid`, `name:group` or `uid:gid`; without a group the user's own, as for commands. */
    | { readonly type: "chown"; readonly owner: string }
    /** A link at `path` that says `target`, whatever that leads to. */
    | { readonly type: "symlink"; readonly target: Uint8Array; readonly parents: boolean }
    /** Gives the entry the name `target`, at once. `replace`: a file that has it goes, or an empty directory for a directory. */
    | { readonly type: "move"; readonly target: Uint8Array; readonly replace: boolean; readonly parents: boolean }
  );

/** What passed, for the other side to compare with what it sent or got. */
export interface FileDigest {
  readonly size: number;
  /** Hex, of the bytes that passed the edge. */
  readonly sha256: string;
}
