import { createHash } from "node:crypto";
import { EntryDecoder } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink, TaskAction } from "#core/guest.ts";
import type { FileRead, FileTarget, FileWrite, FileWritten } from "#core/node.ts";
import type { FileInfo } from "#core/sandbox.ts";
import { FileTask } from "#edge/file-task.ts";
import { fileTask } from "#edge/tasks.ts";
import { validatePath } from "#edge/validate.ts";

/** Bytes given to the agent at once. */
const PIECE_BYTES = 64 * 1024;

/** What a file operation needs of its sandbox. */
export interface FilesHost {
  readonly link: GuestLink;
  readonly number: number;
  /** Who acts when the call does not say. */
  readonly user: string;
  readonly signal: AbortSignal;
}

/** The bytes of a file, or of a part of it. */
export async function* readFile(host: FilesHost, read: FileRead): AsyncGenerator<Uint8Array, void, undefined> {
  whole("offset", read.offset);
  if (read.length !== undefined) whole("length", read.length);
  const { path, offset, length } = read;
  await using task = await begin(host, read, { type: "read", path, offset, length });
  yield* task.read();
}

/** Resolves with what was passed on once the new file stands in the place of the old. */
export async function writeFile(
  host: FilesHost,
  write: FileWrite,
  bytes: AsyncIterable<Uint8Array>,
): Promise<FileWritten> {
  const { path, mode, parents } = write;
  await using task = await begin(host, write, { type: "write", path, mode: permission(mode), parents });
  const digest = createHash("sha256");
  let size = 0;
  for await (const chunk of bytes) {
    host.signal.throwIfAborted();
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      const piece = chunk.subarray(at, at + PIECE_BYTES);
      digest.update(piece);
      await task.write(size, piece);
      size += piece.length;
    }
  }
  host.signal.throwIfAborted();
  await task.finish();
  return { size, sha256: digest.digest("hex") };
}

/** Entries of a directory in its own order. */
export async function* listFiles(host: FilesHost, target: FileTarget): AsyncGenerator<FileInfo, void, undefined> {
  await using task = await begin(host, target, { type: "list", path: target.path });
  const decoder = new EntryDecoder();
  for await (const chunk of task.read()) yield* decoder.push(chunk);
  decoder.end();
}

/** One entry; a final link is not followed. */
export async function statFile(host: FilesHost, target: FileTarget): Promise<FileInfo> {
  await using task = await begin(host, target, { type: "stat", path: target.path });
  const decoder = new EntryDecoder();
  let entry: FileInfo | undefined;
  for await (const chunk of task.read()) for (const found of decoder.push(chunk)) entry ??= found;
  decoder.end();
  if (entry === undefined) throw new SandboxError("Internal", "the sandbox told nothing about a file it has");
  return entry;
}

/** Resolves when the directory is there. */
export async function makeDirectory(
  host: FilesHost,
  target: FileTarget & { readonly mode: number; readonly parents: boolean },
): Promise<void> {
  const { path, mode, parents } = target;
  await using task = await begin(host, target, { type: "mkdir", path, mode: permission(mode), parents });
  await drain(task);
}

/** Resolves when nothing is left at the path. */
export async function removeFile(host: FilesHost, target: FileTarget & { readonly recursive: boolean }): Promise<void> {
  await using task = await begin(host, target, { type: "remove", path: target.path, recursive: target.recursive });
  await drain(task);
}

function begin(host: FilesHost, target: FileTarget, action: TaskAction): Promise<FileTask> {
  validatePath(target.path);
  const what = `${action.type} ${JSON.stringify(Buffer.from(target.path).toString("utf8").slice(0, 200))}`;
  const task = fileTask(action, target.user ?? host.user);
  return FileTask.start(host.link, host.number, task, { what, signal: host.signal });
}

async function drain(task: FileTask): Promise<void> {
  for await (const _ of task.read()) {
    // These operations put nothing out; reading waits for their end.
  }
}

function permission(mode: number): number {
  if (Number.isInteger(mode) && mode >= 0 && mode <= 0o7777) return mode;
  throw new SandboxError("InvalidArgument", "mode must be permission bits, at most 0o7777", {
    details: { field: "mode" },
  });
}

function whole(field: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return;
  throw new SandboxError("InvalidArgument", `${field} must be a whole number of at least 0`, { details: { field } });
}
