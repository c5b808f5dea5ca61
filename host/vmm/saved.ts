import { createHash } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { copyFileSparse } from "./memory.ts";

const VERSION = 1;

/** What is kept of a machine that ended in the middle of its life, beside its disk and in the same directory. */
export interface SavedMachine {
  readonly version: typeof VERSION;
  /** Of the monitor, its kind of processors, the kernel and the machine's shape: equal for machines that can go on from each other. */
  readonly identity: string;
  /** SHA-256 of the devices' state. */
  readonly devices: string;
  /** Of a computer: it was switched off. */
  readonly isOff?: boolean;
  /** Its layers are regions of its memory. */
  readonly hasRegions?: boolean;
}

/** The files of a machine that is saved in this directory. */
export function savedFiles(dir: string) {
  return {
    memory: join(dir, "memory"),
    devices: join(dir, "devices"),
    record: join(dir, "saved.json"),
  };
}

/** Says that the directory has a machine; the other files are there already. Whole, and safe on the disk, when it returns; when it throws, it says nothing. */
export function recordSaved(
  dir: string,
  devices: Buffer,
  facts: Pick<SavedMachine, "identity" | "isOff" | "hasRegions">,
): void {
  writeSaved(dir, devices, { version: VERSION, ...facts, devices: sha256(devices) });
}

function writeSaved(dir: string, devices: Buffer, saved: SavedMachine): void {
  const files = savedFiles(dir);
  writeDurably(files.devices, devices);
  writeDurably(`${files.record}.new`, JSON.stringify(saved));
  renameSync(`${files.record}.new`, files.record);
  try {
    syncDirectory(dir);
  } catch (error) {
    // Whoever asked goes on, and writes to the disk.
    forgetSaved(dir);
    throw error;
  }
}

/** Whether there is a machine in this directory. */
export function isSaved(dir: string): boolean {
  return readRecord(dir) !== undefined;
}

/** Whether the machine in this directory has its layers as regions. */
export function savedRegions(dir: string): boolean {
  return readRecord(dir)?.hasRegions ?? false;
}

/**
 * Makes a copy of what is saved in a directory, but for the disk, in another one: if anything is. `others` are files beside it that go along where they are there.
 * Shares its data where it can; who goes on with it checks it.
 */
export async function copySaved(from: string, to: string, others: readonly string[] = []): Promise<void> {
  const saved = readRecord(from);
  if (saved === undefined) return;
  const { memory, devices } = savedFiles("");
  for (const name of [memory, ...others.filter((other) => existsSync(join(from, other)))]) {
    await copyFileSparse(join(from, name), join(to, name));
    // Memory of gigabytes may take as many seconds, in which this process has others to serve.
    await using copy = await open(join(to, name), "r");
    await copy.sync();
  }
  writeSaved(to, readFileSync(join(from, devices)), saved);
}

/** From here on the directory has no machine: its disk goes on without. */
export function forgetSaved(dir: string): void {
  rmSync(savedFiles(dir).record, { force: true });
}

/** Refuses, with the reason, a saved machine that cannot go on as a machine of this identity. Returns what is known of it. */
export function checkSaved(id: SandboxId, dir: string, identity: string): SavedMachine {
  const saved = readRecord(dir);
  if (saved === undefined) throw new SandboxError("SandboxLost", `nothing is saved of ${id}`);
  if (saved.version !== VERSION) refuse(id, `it has version ${saved.version}, this node writes ${VERSION}`);
  if (saved.identity !== identity) refuse(id, `it was ${saved.identity}, and would be ${identity}`);
  if (sha256(readFileSync(savedFiles(dir).devices)) !== saved.devices)
    refuse(id, "the state of its devices is damaged");
  return saved;
}

function refuse(id: SandboxId, why: string): never {
  throw new SandboxError("FailedPrecondition", `what is saved of ${id} does not fit this node: ${why}`, {
    hint: "start the node as it was when the sandbox was saved, or fork it without its memory",
  });
}

function readRecord(dir: string): SavedMachine | undefined {
  try {
    return JSON.parse(readFileSync(savedFiles(dir).record, "utf8")) as SavedMachine;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

function writeDurably(path: string, content: Buffer | string): void {
  const fd = openSync(path, "w", 0o600);
  try {
    writeFileSync(fd, content);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function syncDirectory(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}
