import { createReadStream, createWriteStream, lstatSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Client } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { type CliContext, print } from "../io.ts";
import { bytesOrText } from "../words.ts";

/** One side of a copy. */
type Place =
  | { readonly sandbox: string; readonly path: string }
  | { readonly sandbox: undefined; readonly path: string };

/** Copies one file into a sandbox (`FILE ID:/path`) or out of it (`ID:/path FILE`); `-` is stdin or stdout. */
export async function cp(context: CliContext, from: string, to: string): Promise<number> {
  const source = placeOf(from);
  const target = placeOf(to);
  if ((source.sandbox === undefined) === (target.sandbox === undefined)) {
    throw new CliError("InvalidArgument", "exactly one side is in a sandbox", { hint: "dsec cp FILE ID:/path" });
  }
  const client = await context.connect({ start: false });
  const size =
    target.sandbox === undefined
      ? await download(context, client, source, target.path)
      : await upload(context, client, source.path, target);
  if (to !== "-") print(context, { from, to, size }, () => "");
  return 0;
}

/** `ID:/path` is in a sandbox; what starts with a slash or a dot, or has no colon, is here. */
function placeOf(text: string): Place {
  const match = /^(s[a-z0-9]+-[a-z0-9]+):(\/.*)$/s.exec(text);
  const [, sandbox, path] = match ?? [];
  return sandbox === undefined || path === undefined ? { sandbox: undefined, path: text } : { sandbox, path };
}

async function upload(context: CliContext, client: Client, from: string, to: Place): Promise<number> {
  const files = client.sandboxes.use(to.sandbox ?? "").files;
  if (from === "-") return (await files.write(bytesOrText(to.path), context.io.stdin, { parents: true })).size;
  const stats = here(from, () => statSync(onDisk(from)));
  if (stats.isDirectory())
    throw new CliError("InvalidArgument", `${from} is a directory`, { hint: "cp copies single files" });
  const path = to.path.endsWith("/") ? `${to.path}${basename(from)}` : to.path;
  const mode = stats.mode & 0o777;
  return (await files.write(bytesOrText(path), createReadStream(onDisk(from)), { mode, parents: true })).size;
}

/** Atomic as well: the old file stays until the new one is complete. */
async function download(context: CliContext, client: Client, from: Place, to: string): Promise<number> {
  const files = client.sandboxes.use(from.sandbox ?? "").files;
  let size = 0;
  async function* counted(): AsyncGenerator<Uint8Array> {
    for await (const chunk of files.stream(bytesOrText(from.path))) {
      size += chunk.byteLength;
      yield chunk;
    }
  }
  if (to === "-") {
    await pipeline(counted, context.io.stdout, { end: false });
    return size;
  }
  const target = isDirectory(to) ? join(to, basename(from.path)) : to;
  const { mode } = await files.stat(bytesOrText(from.path));
  const partial = onDisk(`${target}.${process.pid}.part`);
  try {
    await pipeline(counted, createWriteStream(partial, { flags: "wx", mode: mode & 0o777 }));
    renameSync(partial, onDisk(target));
  } catch (error) {
    rmSync(partial, { force: true });
    if (hasCode(error, "ENOENT", "EACCES", "ENOTDIR", "EROFS", "ENOSPC")) {
      throw new CliError("FailedPrecondition", `${target} cannot be written`, { cause: error });
    }
    throw error;
  }
  return size;
}

function isDirectory(path: string): boolean {
  return path.endsWith("/") || lstatSync(onDisk(path), { throwIfNoEntry: false })?.isDirectory() === true;
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
    throw new CliError("NotFound", `${path} cannot be read`, { cause: error });
  }
}
