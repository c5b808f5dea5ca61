import { createReadStream, createWriteStream, lstatSync, renameSync, rmSync, statSync } from "node:fs";
import { basename } from "node:path";
import { pipeline } from "node:stream/promises";
import { type Client, DsecError, type Files, type SandboxPath } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { type CliContext, print, writeTo } from "../io.ts";
import { tarDirectory } from "../tar-directory.ts";
import { Transferred } from "../transferred.ts";
import { untar } from "../untar.ts";
import { bytesOrText } from "../words.ts";

/** What may be said about a copy. */
export interface CpOptions {
  /** Owners, and setuid, setgid and sticky bits, too. */
  readonly archive?: boolean;
  /** Symbolic links that lead out of a tree, too. */
  readonly allLinks?: boolean;
  /** stdin is a tar archive. */
  readonly tar?: boolean;
  /** Whose rights in the sandbox. */
  readonly user?: string;
}

/** A place in a sandbox. */
interface Inside {
  readonly files: Files;
  readonly path: string;
}

interface Copy {
  readonly context: CliContext;
  readonly options: CpOptions;
  readonly moved: Transferred;
}

/**
 * Copies files and trees into a sandbox (`PATH ID:/path`), out of it (`ID:/path PATH`) or from one to another; `-` is stdin or stdout,
 * where a tree is a tar archive.
 */
export async function cp(context: CliContext, from: string, to: string, options: CpOptions): Promise<number> {
  const client = await context.connect({ start: false });
  const [source, target] = [insideOf(client, from), insideOf(client, to)];
  if (source === undefined && target === undefined) {
    throw new CliError("InvalidArgument", "no side is in a sandbox", { hint: "dsec cp PATH ID:/path" });
  }
  using moved = new Transferred(context.io);
  const copy: Copy = { context, options, moved };
  if (target === undefined) await download(copy, source ?? unreachable(), to);
  else if (source === undefined) await upload(copy, from, target);
  else await across(copy, source, target);
  moved.clear();
  if (to !== "-") print(context, { from, to, size: moved.bytes }, () => "");
  return 0;
}

/** `ID:/path` is in a sandbox; what starts with a slash or a dot, or has no colon, is here. */
function insideOf(client: Client, text: string): Inside | undefined {
  const match = /^(s[a-z0-9]+-[a-z0-9]+):(\/.*)$/s.exec(text);
  const [, sandbox, path] = match ?? [];
  return sandbox === undefined || path === undefined ? undefined : { files: client.sandboxes.use(sandbox).files, path };
}

async function upload({ context, options, moved }: Copy, from: string, { files, path }: Inside): Promise<void> {
  const { user, archive: owners = false } = options;
  const rights = user === undefined ? {} : { user };
  if (from === "-" && options.tar === true) {
    await files.writeTree(bytesOrText(path), moved.through(context.io.stdin), { ...rights, owners });
    return;
  }
  if (from === "-") {
    await files.write(bytesOrText(path), moved.through(context.io.stdin), { ...rights, parents: true });
    return;
  }
  const stats = here(from, () => statSync(onDisk(from)));
  const target = bytesOrText(path.endsWith("/") ? `${path}${basename(from)}` : path);
  if (stats.isDirectory()) {
    await files.writeTree(target, moved.through(tarDirectory(from, { owners })), { ...rights, owners });
    return;
  }
  const mode = stats.mode & (owners ? 0o7777 : 0o777);
  await files.write(target, moved.through(createReadStream(onDisk(from))), { ...rights, mode, parents: true });
  if (owners) await files.chown(target, `${stats.uid}:${stats.gid}`, rights);
}

async function download(copy: Copy, source: Inside, to: string): Promise<void> {
  const { context, options, moved } = copy;
  const tree = await isTree(source, options);
  const bytes = moved.through(tree === undefined ? contentOf(source, options) : tree);
  if (to === "-") {
    for await (const chunk of bytes) if (!(await writeTo(context.io.stdout, chunk))) return;
    return;
  }
  const target = targetOf(to, source.path);
  if (tree === undefined) {
    await downloadFile(bytes, source, target, options);
    return;
  }
  const { archive = false, allLinks = false } = options;
  const { linksLeftOut, specialLeftOut } = await untar(bytes, onDisk(target), { archive, allLinks });
  moved.clear();
  const notes = [
    ...(linksLeftOut === 0 ? [] : [`${linksLeftOut} links that lead out of the tree (--all-links takes them)`]),
    ...(specialLeftOut === 0 ? [] : [`${specialLeftOut} FIFOs`]),
  ];
  if (notes.length > 0) context.io.stderr.write(`dsec: left out: ${notes.join(", ")}\n`);
}

/** Atomic as well: the old file stays until the new one is complete. */
async function downloadFile(
  bytes: AsyncIterable<Uint8Array>,
  { files, path }: Inside,
  target: string,
  options: CpOptions,
): Promise<void> {
  const { mode, type } = await files.stat(bytesOrText(path), rightsOf(options));
  const bits = type === "symlink" ? 0o644 : mode & 0o777;
  const partial = onDisk(`${target}.${process.pid}.part`);
  try {
    await pipeline(bytes, createWriteStream(partial, { flags: "wx", mode: bits }));
    renameSync(partial, onDisk(target));
  } catch (error) {
    rmSync(partial, { force: true });
    if (hasCode(error, "ENOENT", "EACCES", "ENOTDIR", "EROFS", "ENOSPC")) {
      throw new CliError("FailedPrecondition", `${target} cannot be written`, { cause: error });
    }
    throw error;
  }
}

async function across({ options, moved }: Copy, source: Inside, target: Inside): Promise<void> {
  const { archive: owners = false } = options;
  const tree = await isTree(source, options);
  const to = bytesOrText(target.path.endsWith("/") ? `${target.path}${basename(source.path)}` : target.path);
  if (tree !== undefined) {
    await target.files.writeTree(to, moved.through(tree), { ...rightsOf(options), owners });
    return;
  }
  const { mode } = await source.files.stat(bytesOrText(source.path), rightsOf(options));
  const write = { ...rightsOf(options), mode: mode & 0o777, parents: true };
  await target.files.write(to, moved.through(contentOf(source, options)), write);
}

function contentOf({ files, path }: Inside, options: CpOptions): AsyncIterable<Uint8Array> {
  return files.stream(bytesOrText(path), rightsOf(options));
}

/** The tree at a path that is a directory, or a link to one; undefined for anything else. */
async function isTree({ files, path }: Inside, options: CpOptions): Promise<AsyncIterable<Uint8Array> | undefined> {
  const rights = rightsOf(options);
  const { type } = await files.stat(bytesOrText(path), rights);
  if (type === "directory") return files.readTree(bytesOrText(path), rights);
  if (type !== "symlink") return undefined;
  const followed: SandboxPath = bytesOrText(`${path}/.`);
  const there = await files.stat(followed, rights).catch((error: unknown) => {
    if (error instanceof DsecError && (error.kind === "InvalidArgument" || error.kind === "NotFound")) return undefined;
    throw error;
  });
  return there === undefined ? undefined : files.readTree(followed, rights);
}

function rightsOf({ user }: CpOptions): { readonly user?: string } {
  return user === undefined ? {} : { user };
}

/** A directory that is there takes what comes under its own name. */
function targetOf(to: string, from: string): string {
  if (!to.endsWith("/") && lstatSync(onDisk(to), { throwIfNoEntry: false })?.isDirectory() !== true) return to;
  const name = basename(from);
  if (name === "" || name === "." || name === "..") {
    throw new CliError("AlreadyExists", `${to} is there already`, { hint: "name a path that is free" });
  }
  return to.endsWith("/") ? `${to}${name}` : `${to}/${name}`;
}

/** A name of this machine's as its file system has it. */
function onDisk(path: string): Buffer {
  return Buffer.from(bytesOrText(path));
}

function here<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "ENOTDIR")) throw error;
    throw new CliError("NotFound", `${path} cannot be read`, { cause: error, hint: "check the path" });
  }
}

function unreachable(): never {
  throw new Error("one side is in a sandbox");
}
