import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { hasCode } from "#core/errors.ts";
import { findQemu } from "./process.ts";
import { loading, WITHOUT_RIGHTS } from "./spawn.ts";
import { LENT, memoryWords } from "./words.ts";

const MIB = 1024 * 1024;
const [LENDER_FD, MEMORY_FD] = [3, 4];
const LIMIT_MS = 10_000;
const MOST_SAID = 300;

/**
 * Why the QEMU of this host does not take memory that the library `lender` lends it; undefined when it has done so. Throws `FailedPrecondition` where
 * there is no QEMU.
 */
export async function lendingObstacle(lender: string): Promise<string | undefined> {
  const program = findQemu();
  const dir = mkdtempSync(join(tmpdir(), "dsec-lend-"));
  using files = new DisposableStack();
  files.defer(() => rmSync(dir, { recursive: true, force: true }));
  const path = join(dir, "memory");
  writeFileSync(path, "", { mode: 0o600 });
  truncateSync(path, MIB);
  try {
    const fds = [lender, path].map((name) => openSync(name, "r"));
    for (const fd of fds) files.defer(() => closeSync(fd));
    return await tryToLend(program, fds);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return `there is no ${lender}`;
    throw error;
  }
}

async function tryToLend(program: string, fds: readonly number[]): Promise<string | undefined> {
  const memory = memoryWords({ sizeMiB: 1, file: { path: `${LENT}${MEMORY_FD}`, access: "private" } });
  const words = ["-nodefaults", "-display", "none", "-machine", "none", "-object", memory, "-monitor", "stdio"];
  const line = [...WITHOUT_RIGHTS, ...loading(LENDER_FD), program, ...words];
  const [first = "", ...rest] = line;
  const child = spawn(first, rest, { stdio: ["pipe", "ignore", "pipe", ...fds], timeout: LIMIT_MS });
  if (child.stdin === null || child.stderr === null) throw new Error("a program without its pipes");
  // One that has ended already says why.
  child.stdin.on("error", () => {});
  child.stdin.end("quit\n");
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
  return code === 0 ? undefined : `QEMU does not take it: ${said.trim().slice(-MOST_SAID)}`;
}
