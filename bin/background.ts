import { spawn } from "node:child_process";
import { closeSync, fstatSync, openSync, readSync, renameSync, statSync } from "node:fs";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { SandboxError } from "#core/errors.ts";
import type { Places } from "./config.ts";
import { tryLockFile } from "./file-lock.ts";
import { makePlaces } from "./make-places.ts";
import { NODE_FLAGS } from "./node-flags.ts";
import { type NodeRecord, readNodeRecord } from "./node-record.ts";
import { logFile, startLock } from "./places.ts";

/** A node that adopts thousands of sandboxes takes a while; one that hangs must not take the caller with it. */
const READY_TIMEOUT_MS = 120_000;
const LOG_TAIL_BYTES = 2_000;
/** A log that has grown beyond this is put aside when a node starts. */
const LOG_KEEP_BYTES = 16 * 1024 * 1024;

/** Starts a node that outlives this process, and waits until it answers. Several callers at once start one. */
export async function startInBackground(
  places: Places,
  options: { readonly words: readonly string[]; readonly say: (line: string) => void },
): Promise<NodeRecord> {
  if (process.getuid?.() !== 0) {
    throw new SandboxError("PermissionDenied", "a node needs root", {
      hint: "sudo dsec up, or set DSEC_URL and DSEC_TOKEN",
    });
  }
  makePlaces(places);
  using _ = await lockFile(startLock(places));
  const running = readNodeRecord(places);
  if (running !== undefined) return running;
  options.say(`starting a node in the background (log: ${logFile(places)}; stop it with dsec down)`);
  await launch(places, options.words);
  const record = readNodeRecord(places);
  if (record === undefined) throw failed(places, "it stopped again at once", 0);
  return record;
}

async function launch(places: Places, words: readonly string[]): Promise<void> {
  const log = openLog(places);
  const logStart = fstatSync(log).size;
  const entry = fileURLToPath(new URL("./node.ts", import.meta.url));
  const child = spawn(process.execPath, [...NODE_FLAGS, entry, ...words], {
    cwd: "/",
    detached: true,
    stdio: ["ignore", log, log, "pipe"],
    env: { ...process.env, DSEC_DATA_DIR: places.dataDir, DSEC_RUN_DIR: places.runDir },
  });
  closeSync(log);
  child.unref();
  const outcome = await readiness(child.stdio[3] as Readable, child);
  if (outcome !== "ready") throw failed(places, outcome, logStart);
}

/** The child writes `ready` into its pipe when it answers; that races with its end and with the clock. */
async function readiness(pipe: Readable, child: ReturnType<typeof spawn>): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let said = "";
  const timer = setTimeout(() => resolve(`it is not ready after ${READY_TIMEOUT_MS / 1000} s`), READY_TIMEOUT_MS);
  pipe.on("data", (chunk) => {
    said += chunk;
    if (said.includes("ready\n")) resolve("ready");
  });
  child.on("error", (error) => resolve(error.message));
  child.on("exit", (code, signal) => resolve(`it ended ${signal === null ? `with status ${code}` : `by ${signal}`}`));
  const outcome = await promise;
  clearTimeout(timer);
  pipe.destroy();
  child.removeAllListeners();
  return outcome;
}

function openLog(places: Places): number {
  const file = logFile(places);
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > LOG_KEEP_BYTES) renameSync(file, `${file}.1`);
  return openSync(file, "a", 0o600);
}

function failed(places: Places, why: string, logStart: number): SandboxError {
  const { message, hint } = lastWords(logTail(places, logStart));
  return new SandboxError("Unavailable", `the node did not start: ${why}${message === "" ? "" : `; ${message}`}`, {
    hint: `${hint ?? "dsec doctor says what this machine lacks"}; its log is ${logFile(places)}`,
  });
}

/** Why the node ended and what it advises: of its last error, or else its last line. */
function lastWords(rows: readonly string[]): { readonly message: string; readonly hint?: string | undefined } {
  const at = rows.findLastIndex((row) => row.startsWith("dsec: "));
  if (at < 0) return { message: rows.at(-1) ?? "" };
  return { message: (rows[at] ?? "").replace(/^dsec: /, ""), hint: /^hint: (.*)/.exec(rows[at + 1] ?? "")?.[1] };
}

function logTail(places: Places, from: number): readonly string[] {
  const fd = openSync(logFile(places), "r");
  try {
    const size = fstatSync(fd).size;
    const start = Math.max(from, size - LOG_TAIL_BYTES);
    const buffer = Buffer.alloc(Math.max(0, size - start));
    readSync(fd, buffer, 0, buffer.length, start);
    return buffer.toString("utf8").trim().split("\n");
  } finally {
    closeSync(fd);
  }
}

/** Waits its turn: whoever starts a node holds the lock only as long as that takes. */
async function lockFile(file: string): Promise<Disposable> {
  for (const end = Date.now() + READY_TIMEOUT_MS; ; ) {
    const lock = tryLockFile(file);
    if (lock !== undefined) return lock;
    if (Date.now() > end) throw new SandboxError("Unavailable", "somebody else has been starting a node for too long");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
