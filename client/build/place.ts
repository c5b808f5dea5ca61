import { posix } from "node:path";
import { DsecError, NotFoundError, type Sandbox } from "#sdk";

/** Where files of a COPY go, and whose they are there. */
export interface Placing {
  /** Absolute; ends with `/` where it must be a directory. */
  readonly target: string;
  /** `user[:group]`, by name or number. */
  readonly owner: string | undefined;
  readonly mode: number | undefined;
}

/** Where one file goes: its directory, and its name when that is another one there. */
export async function placeOfFile(sandbox: Sandbox, target: string, name: string, signal: AbortSignal) {
  const renames = !target.endsWith("/") && !(await isDirectory(sandbox, target, signal));
  return renames ? { directory: posix.dirname(target), name: posix.basename(target) } : { directory: target, name };
}

/** True for a directory and for a link to one. */
export async function isDirectory(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<boolean> {
  try {
    // Through links, as a shell would.
    await sandbox.files.list(path, { user: "0", signal });
    return true;
  } catch (error) {
    if (error instanceof DsecError && ["NotFound", "InvalidArgument", "FailedPrecondition"].includes(error.kind))
      return false;
    throw error;
  }
}

/** Numbers for `user[:group]`, by what the sandbox's own files say; a group that is not named is the user's. */
export async function idsOf(sandbox: Sandbox, owner: string, signal: AbortSignal) {
  const [user = "", group] = owner.split(":");
  const own = /^\d+$/.test(user) ? undefined : await row(sandbox, "/etc/passwd", user, signal);
  const uid = Number(own?.[2] ?? user);
  if (group === undefined) return { uid, gid: Number(own?.[3] ?? uid) };
  return { uid, gid: Number(/^\d+$/.test(group) ? group : (await row(sandbox, "/etc/group", group, signal))[2]) };
}

async function row(sandbox: Sandbox, file: string, name: string, signal: AbortSignal): Promise<readonly string[]> {
  const text = await sandbox.files.readText(file, { user: "0", signal });
  const found = text.split("\n").find((line) => line.startsWith(`${name}:`));
  if (found === undefined) throw new NotFoundError("NotFound", `${file} of the image has no ${name}`);
  return found.split(":");
}
