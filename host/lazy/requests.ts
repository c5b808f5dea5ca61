import type { Slot } from "./hand.ts";
import type { PieceSet } from "./pieces.ts";

/** The ways by which a kernel tells that a part of a file is about to be read. */
export const MECHANISMS = ["fanotify", "fuse"] as const;
export type Mechanism = (typeof MECHANISMS)[number];

/** A file of which pieces come when they are read. */
export interface LazyFile {
  /** By what it is looked up, where a name matters. */
  readonly name: string;
  /** By which requests name it, see `fileId`. */
  readonly id: number;
  /** Open for reading and writing. */
  readonly fd: number;
  readonly present: PieceSet;
  /** What readers have asked for. */
  readonly touched: PieceSet;
  /** Who fills wants to hear when one of these is read and there: once each. */
  readonly marks: PieceSet;
  /** Reads that found everything, and reads that had to wait. */
  readonly counts: Int32Array<SharedArrayBuffer>;
}

/** Places in `LazyFile.counts`. */
export const COUNT = { hits: 0, misses: 1 } as const;

/** A read that waits for its answer. */
export interface Read {
  readonly id: number;
  readonly offset: number;
  readonly length: number;
}

/** Where requests look up the files that are served. */
export interface LazyFiles {
  byId(ino: number): LazyFile | undefined;
  byName(name: string): LazyFile | undefined;
}

/** What a mechanism's requests look like, for the threads that take and answer them. */
export interface Requests {
  /** Waits for the next request and puts it into the slot; false when no more will come. */
  receive(slot: Slot): boolean;
  /** What the request wants to read; `undefined` when it was something else, or of this process: then it is answered. */
  look(slot: Slot): Read | undefined;
  /** The same for a request that a killed server had in hand. `undefined` too when it must be refused, which has been done. */
  resume(slot: Slot): Read | undefined;
  /** To be called between the last `resume` and the first `receive`: refuses what the killed server had taken without a trace. */
  settle(): void;
  /** Lets the read go on: what it asks for is in the file. False when a part of it was taken away meanwhile. */
  grant(slot: Slot, file: LazyFile): boolean;
  /** Ends the read with EIO. */
  refuse(slot: Slot): void;
}
