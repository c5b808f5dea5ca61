import { createHash } from "node:crypto";
import { EntryDecoder } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import {
  type FileChange,
  type FileDigest,
  type FileList,
  type FileRead,
  type FileTarget,
  type FileWatch,
  type FileWrite,
  LIST_DEPTH_LIMIT,
  type TreeWrite,
} from "#core/files.ts";
import type { GuestLink, TaskAction } from "#core/guest.ts";
import type { FileInfo } from "#core/sandbox.ts";
import { fileTask } from "#edge/commands/tasks.ts";
import { FileTask } from "#edge/files/task.ts";
import { refuse, validatePath } from "#edge/validate.ts";

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

/** The bytes of a file, or of a part of it, and at the end what they were. */
export async function* readFile(
  host: FilesHost,
  read: FileRead,
): AsyncGenerator<Uint8Array | FileDigest, void, undefined> {
  whole("offset", read.offset);
  if (read.length !== undefined) whole("length", read.length);
  const { path, offset, length } = read;
  await using task = await begin(host, read, { type: "read", path, offset, length });
  const digest = createHash("sha256");
  let size = 0;
  for await (const bytes of task.read()) {
    digest.update(bytes);
    size += bytes.length;
    yield bytes;
  }
  yield { size, sha256: digest.digest("hex") };
}

/** Resolves with what was passed on once the new file stands in the place of the old. */
export async function writeFile(
  host: FilesHost,
  write: FileWrite,
  bytes: AsyncIterable<Uint8Array>,
): Promise<FileDigest> {
  const { path, mode, parents } = write;
  await using task = await begin(host, write, { type: "write", path, mode: permission(mode), parents });
  const digest = createHash("sha256");
  const size = await feed(host, task, bytes, (piece) => digest.update(piece));
  return { size, sha256: digest.digest("hex") };
}

/** A tree in the coding of `core/tree.ts`. */
export async function* readTree(host: FilesHost, target: FileTarget): AsyncGenerator<Uint8Array, void, undefined> {
  await using task = await begin(host, target, { type: "read-tree", path: target.path });
  yield* task.read();
}

/** What happens at a path, in the coding of `core/watch.ts`. */
export async function* watchFiles(host: FilesHost, watch: FileWatch): AsyncGenerator<Uint8Array, void, undefined> {
  const { path, recursive } = watch;
  await using task = await begin(host, watch, { type: "watch", path, recursive });
  yield* task.read();
}

/** Resolves when the whole tree is there. */
export async function writeTree(host: FilesHost, write: TreeWrite, bytes: AsyncIterable<Uint8Array>): Promise<void> {
  await using task = await begin(host, write, { type: "write-tree", path: write.path, owners: write.owners });
  await feed(host, task, bytes);
}

/** Gives the task its input, and waits for its end; the number of bytes. */
async function feed(
  host: FilesHost,
  task: FileTask,
  bytes: AsyncIterable<Uint8Array>,
  seen: (piece: Uint8Array) => void = () => undefined,
): Promise<number> {
  let size = 0;
  for await (const chunk of bytes) {
    host.signal.throwIfAborted();
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      const piece = chunk.subarray(at, at + PIECE_BYTES);
      seen(piece);
      await task.write(size, piece);
      size += piece.length;
    }
  }
  host.signal.throwIfAborted();
  await task.finish();
  return size;
}

/** Entries of a directory, and of those below as far as the depth goes, a piece of the agent's output at a time. */
export async function* listFiles(
  host: FilesHost,
  list: FileList,
): AsyncGenerator<readonly FileInfo[], void, undefined> {
  const { path, depth, hidden } = list;
  whole("depth", depth);
  if (depth < 1 || depth > LIST_DEPTH_LIMIT) refuse("depth", `must be from 1 to ${LIST_DEPTH_LIMIT}`);
  await using task = await begin(host, list, { type: "list", path, depth, hidden });
  const decoder = new EntryDecoder();
  for await (const chunk of task.read()) yield decoder.push(chunk);
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

/** Resolves when the change is made. */
export async function changeFile(host: FilesHost, change: FileChange): Promise<void> {
  await using task = await begin(host, change, actionOf(change));
  for await (const _ of task.read()) {
    // Changes put nothing out; reading waits for their end.
  }
}

/** Checks what a remote caller said: only these fields of it are looked at. */
function actionOf(change: FileChange): TaskAction {
  const { type, path } = change;
  switch (type) {
    case "mkdir":
      return { type, path, mode: permission(change.mode), parents: change.parents };
    case "remove":
      return { type, path, recursive: change.recursive };
    case "chmod":
      return { type, path, mode: permission(change.mode) };
    case "chown":
      if (typeof change.owner !== "string" || change.owner === "") refuse("owner", "must be a user");
      return { type, path, owner: change.owner };
    case "symlink":
      if (!(change.target instanceof Uint8Array) || change.target.length === 0) {
        refuse("target", "must say where the link points");
      }
      return { type, path, target: change.target, parents: change.parents };
    case "move":
      validatePath(change.target, "target");
      return { type, path, target: change.target, replace: change.replace, parents: change.parents };
    default:
      refuse("type", "is no change that this node knows");
  }
}

function begin(host: FilesHost, target: FileTarget, action: TaskAction): Promise<FileTask> {
  validatePath(target.path);
  const what = `${action.type} ${JSON.stringify(Buffer.from(target.path).toString("utf8").slice(0, 200))}`;
  const task = fileTask(action, target.user ?? host.user);
  return FileTask.start(host.link, host.number, task, { what, signal: host.signal });
}

function permission(mode: number): number {
  if (Number.isInteger(mode) && mode >= 0 && mode <= 0o7777) return mode;
  refuse("mode", "must be permission bits, at most 0o7777");
}

function whole(field: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return;
  refuse(field, "must be a whole number of at least 0");
}
