import { join } from "node:path";
import type { Places } from "./config.ts";

/** Secret that proves the right to use the node; readable by its owner only. */
export function tokenFile(places: Places): string {
  return join(places.dataDir, "token");
}

/** What a background node prints. */
export function logFile(places: Places): string {
  return join(places.dataDir, "node.log");
}

/** Says which process is the node and where it listens; written once it answers. */
export function recordFile(places: Places): string {
  return join(places.runDir, "node.json");
}

/** Held while somebody starts a node, so that two who find none start one. */
export function startLock(places: Places): string {
  return join(places.runDir, "start.lock");
}
