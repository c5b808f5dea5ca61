import { mkdirSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { join, resolve, sep } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { Places } from "./config.ts";

/** Others may pass through to what is theirs, and list nothing. */
const MODE = 0o711;

/** Makes the directories of a node. Throws `InvalidArgument` naming the setting of one that cannot be made or takes no files. */
export function makePlaces({ dataDir, runDir }: Places): void {
  makeDirectory(dataDir, "--data-dir (DSEC_DATA_DIR)");
  makeDirectory(runDir, "--run-dir (DSEC_RUN_DIR)");
}

function makeDirectory(path: string, setting: string): void {
  try {
    makeParts(resolve(path));
    // File systems of the kernel have directories in which nothing can be made.
    rmdirSync(mkdtempSync(join(path, ".dsec-")));
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error)) throw error;
    throw new SandboxError("InvalidArgument", `${setting}: ${path} cannot be a directory of the node (${error.code})`, {
      cause: error,
      hint: "name a directory on a disk with room, one that exists or can be made",
    });
  }
}

/** One part after the other: below /proc, Node's own `recursive` never ends. */
function makeParts(path: string): void {
  for (let end = path.indexOf(sep, 1); ; end = path.indexOf(sep, end + 1)) {
    makePart(end < 0 ? path : path.slice(0, end));
    if (end < 0) return;
  }
}

function makePart(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return;
  try {
    mkdirSync(path, MODE);
  } catch (error) {
    // Another process may have been faster; a file in its place shows at the next step.
    if (!hasCode(error, "EEXIST")) throw error;
  }
}
