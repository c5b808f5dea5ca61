import { FanotifyRequests } from "./fanotify.ts";
import { FuseRequests } from "./fuse.ts";
import type { Hand } from "./hand.ts";
import type { LazyFiles, Mechanism, Requests } from "./requests.ts";

/** What a thread needs to take and answer requests. */
export interface RequestsOptions {
  readonly mechanism: Mechanism;
  /** The group, or the connection of the file system. */
  readonly descriptor: number;
  readonly hand: Hand;
  readonly files: LazyFiles;
}

/** The requests of one thread: each has its own. */
export function openRequests({ mechanism, descriptor, hand, files }: RequestsOptions): Requests {
  return mechanism === "fanotify" ? new FanotifyRequests(descriptor, hand) : new FuseRequests(descriptor, hand, files);
}
