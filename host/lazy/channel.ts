import { closeSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import { MNT, unmount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { copyDescriptor, signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { openGroup } from "./fanotify.ts";
import { mountLazyFuse } from "./fuse.ts";
import { MECHANISMS, type Mechanism } from "./requests.ts";

/** Where the process that serves has the descriptor. */
export const CHANNEL_FD = 3;

const SIGKILL = 9;

/** The connection with the kernel over which lazy files are served. */
export interface Channel {
  readonly mechanism: Mechanism;
  /** The fanotify group, or the connection of the FUSE file system. */
  readonly descriptor: number;
  /** Files were served before, and for a while nobody held their connection: what was read then may be wrong. */
  readonly hasGap: boolean;
}

/** Files by which processes that follow each other know of a channel. */
export function channelPaths(runDir: string) {
  return {
    record: join(runDir, "lazy.json"),
    hand: join(runDir, "lazy.hand"),
    /** What the process that serves printed when it failed. */
    log: join(runDir, "lazy.log"),
    /** Only for root: below it the files of all images can be read. */
    private: join(runDir, "lazy"),
    /** FUSE only: where the files appear. */
    files: join(runDir, "lazy", "files"),
  } as const;
}

/** What is known of the process that serves. */
export interface ServerRecord {
  readonly mechanism: Mechanism;
  readonly pid: number;
  readonly startTicks: number;
}

/**
 * Takes the connection over from the process that an earlier node left, which ends, or opens one. `FailedPrecondition` where the
 * kernel has not got what `mechanism` needs.
 */
export async function openChannel(runDir: string, mechanism: Mechanism): Promise<Channel> {
  const earlier = readRecord(runDir);
  if (earlier === undefined) return { ...newChannel(runDir, mechanism), hasGap: false };
  const descriptor = copyDescriptor(earlier.pid, earlier.startTicks, CHANNEL_FD);
  signalProcess(earlier.pid, earlier.startTicks, SIGKILL);
  // Two servers would share the requests in hand.
  while (processStartTicks(earlier.pid) === earlier.startTicks) await delay(1);
  if (descriptor !== undefined && isUsable(runDir, earlier.mechanism)) {
    return { mechanism: earlier.mechanism, descriptor, hasGap: false };
  }
  if (descriptor !== undefined) closeSync(descriptor);
  removeChannel(runDir);
  return { ...newChannel(runDir, mechanism), hasGap: true };
}

/** Whether an earlier node left a connection, or what is left of one. */
export function hasChannel(runDir: string): boolean {
  return existsSync(channelPaths(runDir).record);
}

/** Removes what `openChannel` made, once nobody serves. */
export function removeChannel(runDir: string): void {
  const { record, hand, log, files, private: directory } = channelPaths(runDir);
  while (mountAt(files) !== undefined) unmount(files, MNT.DETACH);
  for (const path of [record, `${record}.new`, hand, log]) rmSync(path, { force: true });
  rmSync(directory, { force: true, recursive: true });
}

/** Notes which process serves. */
export function writeRecord(runDir: string, mechanism: Mechanism, pid: number): void {
  const startTicks = processStartTicks(pid);
  if (startTicks === undefined) return;
  const written: ServerRecord = { mechanism, pid, startTicks };
  const { record } = channelPaths(runDir);
  writeFileSync(`${record}.new`, JSON.stringify(written), { mode: 0o600 });
  renameSync(`${record}.new`, record);
}

function newChannel(runDir: string, mechanism: Mechanism) {
  try {
    if (mechanism === "fanotify") return { mechanism, descriptor: openGroup() };
    const { files, private: directory } = channelPaths(runDir);
    for (const path of [directory, files]) mkdirSync(path, { recursive: true, mode: 0o700 });
    return { mechanism, descriptor: mountLazyFuse(files) };
  } catch (cause) {
    throw new SandboxError("FailedPrecondition", `this kernel serves no lazy files by ${mechanism}`, {
      cause,
      hint: "load the kernel module fuse, or let the node fetch whole layers",
    });
  }
}

function isUsable(runDir: string, mechanism: Mechanism): boolean {
  return mechanism === "fanotify" || mountAt(channelPaths(runDir).files) !== undefined;
}

/** `undefined` when there is none, or a crash cut it short. */
function readRecord(runDir: string): ServerRecord | undefined {
  try {
    const text = readFileSync(channelPaths(runDir).record, "utf8");
    const { mechanism, pid, startTicks } = JSON.parse(text) as Partial<ServerRecord>;
    const known = MECHANISMS.find((name) => name === mechanism);
    if (known === undefined || !Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
    return { mechanism: known, pid: Number(pid), startTicks: Number(startTicks) };
  } catch (error) {
    if (hasCode(error, "ENOENT") || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
