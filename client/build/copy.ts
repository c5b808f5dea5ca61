import { posix } from "node:path";
import { DsecError, NotFoundError, type Sandbox } from "#sdk";
import type { BuildContext, PlacedEntry } from "./context.ts";
import { type Instruction, refused } from "./dockerfile.ts";
import { expandText, expandWords } from "./expand.ts";
import { type BuildState, type Settings, said, variablesOf } from "./state.ts";

/** A COPY with its variables put in and its files found. */
export interface CopyStep {
  readonly entries: readonly PlacedEntry[];
  /** Absolute; ends with `/` where it must be a directory. */
  readonly target: string;
  /** `user[:group]`, by name or number. */
  readonly owner: string | undefined;
  readonly mode: number | undefined;
}

const ARCHIVE = /\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst))$/;

/** Reads a COPY or ADD. Throws `InvalidArgument` with its line, `NotFound` when the context has no such file. */
export function copyStep(
  instruction: Instruction,
  state: BuildState,
  context: BuildContext,
  settings: Settings,
): CopyStep {
  const { line, name, flags } = instruction;
  const variables = variablesOf(state);
  const expand = (text: string) => said(line, () => expandText(text, variables, settings.escapeMark));
  const words =
    instruction.words?.map(expand) ?? said(line, () => expandWords(instruction.text, variables, settings.escapeMark));
  const [destination, ...sources] = [...words].reverse();
  if (destination === undefined || sources.length === 0) throw refused(line, `${name} needs a source and a target`);
  for (const source of sources) {
    if (/^[a-z+]+:\/\//i.test(source)) throw refused(line, `${name} takes local files: ${source} is none`);
    if (name === "ADD" && ARCHIVE.test(source))
      throw refused(line, `ADD unpacks no archives: COPY ${source} and RUN tar`);
  }
  const entries = sources.reverse().flatMap((source) => context.select(source));
  const chmod = flags.get("chmod");
  if (chmod !== undefined && !/^[0-7]{3,4}$/.test(chmod)) throw refused(line, `--chmod=${chmod} is not octal`);
  const chown = flags.get("chown");
  const directory = destination.endsWith("/") || destination === "." || sources.length > 1;
  return {
    entries,
    target: posix.resolve(state.workdir, destination) + (directory ? "/" : ""),
    owner: chown === undefined ? undefined : expand(chown),
    mode: chmod === undefined ? undefined : Number.parseInt(chmod, 8),
  };
}

/** Puts the files of a COPY into a sandbox. */
export async function copyInto(
  sandbox: Sandbox,
  { entries, target, owner, mode }: CopyStep,
  context: BuildContext,
  signal: AbortSignal,
): Promise<void> {
  const [only, ...more] = entries;
  const isOneFile =
    only !== undefined && more.length === 0 && !only.path.endsWith(`/${only.name}/`) && only.type !== "directory";
  const renames = isOneFile && !target.endsWith("/") && !(await isDirectory(sandbox, target, signal));
  const directory = renames ? posix.dirname(target) : target;
  const placed = renames ? [{ ...only, name: posix.basename(target) }] : entries;
  const { uid, gid } = owner === undefined ? { uid: 0, gid: 0 } : await idsOf(sandbox, owner, signal);
  await sandbox.files.writeTree(directory, context.archive(placed, { uid, gid, mode }), {
    user: "0",
    owners: true,
    signal,
  });
}

async function isDirectory(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<boolean> {
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
async function idsOf(sandbox: Sandbox, owner: string, signal: AbortSignal) {
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
