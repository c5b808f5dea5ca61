import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Where the agent is in a system that is built here. */
export const AGENT_PATH = "usr/lib/dsec/dsec-agent";

/** What its sessions run. */
export const SHELL_PATH = "usr/lib/dsec/bash";

/** Puts a file into a tree, with the directories above it. */
export function addFile(tree: string, path: string, bytes: string | Uint8Array, mode: number): void {
  const file = join(tree, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  chmodSync(file, mode);
}
