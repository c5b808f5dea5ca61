import { posix } from "node:path";
import type { Sandbox } from "#sdk";
import type { BuildContext, PlacedEntry } from "./context.ts";
import type { Instruction } from "./dockerfile.ts";
import { expandBody, expandText, expandWords } from "./expand.ts";
import { idsOf, type Placing, placeOfFile } from "./place.ts";
import { refused } from "./refused.ts";
import { type BuildState, type Settings, said, variablesOf } from "./state.ts";

/** A COPY with its variables put in and its files found. */
export interface CopyStep extends Placing {
  /** Of the context, or given in the file itself. Empty with `--from`. */
  readonly entries: readonly PlacedEntry[];
  /** With `--from`: absolute paths there, `*` and `?` in their last names. */
  readonly sources: readonly string[];
}

const ARCHIVE = /\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst))$/;

/** Reads a COPY or ADD. Throws `InvalidArgument` with its line, `NotFound` when the context has no such file. */
export function copyStep(
  instruction: Instruction,
  state: BuildState,
  context: BuildContext,
  settings: Settings,
): CopyStep {
  const { line, name, flags, documents } = instruction;
  const variables = variablesOf(state);
  const expand = (text: string) => said(line, () => expandText(text, variables, settings.escapeMark));
  const words =
    instruction.words?.map(expand) ?? said(line, () => expandWords(instruction.text, variables, settings.escapeMark));
  const [destination, ...reversed] = [...words].reverse();
  const sources = reversed.reverse();
  if (destination === undefined || sources.length === 0) throw refused(line, `${name} needs a source and a target`);
  for (const source of sources) checkSource(line, name, source);
  const chmod = flags.get("chmod");
  if (chmod !== undefined && !/^[0-7]{3,4}$/.test(chmod)) throw refused(line, `--chmod=${chmod} is not octal`);
  const chown = flags.get("chown");
  const directory = destination.endsWith("/") || destination === "." || sources.length > 1;
  const placing = {
    target: posix.resolve(state.workdir, destination) + (directory ? "/" : ""),
    owner: chown === undefined ? undefined : expand(chown),
    mode: chmod === undefined ? undefined : Number.parseInt(chmod, 8),
  };
  if (flags.has("from")) return { ...placing, entries: [], sources: sources.map((each) => imagePath(line, each)) };
  const written = documents.map(({ name: file, text, expands }) =>
    context.written(file, expands ? said(line, () => expandBody(text, variables, settings.escapeMark)) : text),
  );
  const entries = sources.flatMap((each) => (each.startsWith("<<") ? [] : context.select(each)));
  return { ...placing, entries: [...entries, ...written], sources: [] };
}

function checkSource(line: number, name: string, source: string): void {
  if (/^[a-z+]+:\/\//i.test(source)) throw refused(line, `${name} takes local files: ${source} is none`);
  if (name === "ADD" && ARCHIVE.test(source))
    throw refused(line, `ADD unpacks no archives: COPY ${source} and RUN tar`);
}

/** Paths of an image begin at its root. */
function imagePath(line: number, source: string): string {
  if (source.startsWith("<<")) throw refused(line, "COPY --from takes no here-document");
  const path = posix.resolve("/", source);
  if (/[*?]/.test(posix.dirname(path)))
    throw refused(line, `COPY --from takes * and ? in the last name only: ${source}`);
  return path;
}

/** Puts the files of a COPY out of the context into a sandbox. */
export async function copyInto(
  sandbox: Sandbox,
  { entries, target, owner, mode }: CopyStep,
  context: BuildContext,
  signal: AbortSignal,
): Promise<void> {
  const [only, ...more] = entries;
  const isOneFile =
    only !== undefined && more.length === 0 && !only.path.endsWith(`/${only.name}/`) && only.type !== "directory";
  const place = isOneFile ? await placeOfFile(sandbox, target, only.name, signal) : undefined;
  const placed = place === undefined ? entries : entries.map((each) => ({ ...each, name: place.name }));
  const { uid, gid } = owner === undefined ? { uid: 0, gid: 0 } : await idsOf(sandbox, owner, signal);
  await sandbox.files.writeTree(place?.directory ?? target, context.archive(placed, { uid, gid, mode }), {
    user: "0",
    owners: true,
    signal,
  });
}
