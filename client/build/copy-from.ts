import { posix } from "node:path";
import type { TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import { DsecError, NotFoundError, type Sandbox } from "#sdk";
import { changedTree } from "./changed-tree.ts";
import type { CopyStep } from "./copy.ts";
import { globToRegExp } from "./patterns.ts";
import { idsOf, placeOfFile } from "./place.ts";

/** As the kernel has it. */
const MAX_LINKS = 40;

/** Puts files of one sandbox into another one, as `COPY --from` says: of a directory what is in it. `NotFound` for a path that leads to nothing. */
export async function copyFrom(from: Sandbox, to: Sandbox, step: CopyStep, signal: AbortSignal): Promise<void> {
  const ids = step.owner === undefined ? {} : await idsOf(to, step.owner, signal);
  for (const source of step.sources) {
    for (const path of await matches(from, source, signal)) {
      const found = await followed(from, path, signal);
      const place = found.isDirectory ? undefined : await placeOfFile(to, step.target, posix.basename(path), signal);
      const change = (entry: TreeEntry): TreeEntry | undefined => {
        const name = place?.name === undefined ? components(entry.path).join("/") : bytesOf(place.name);
        // Of the directory itself nothing is copied.
        if (name === "") return undefined;
        return {
          ...entry,
          ...ids,
          path: name,
          mode: entry.type === "symlink" ? entry.mode : (step.mode ?? entry.mode),
        };
      };
      const tree = changedTree(from.files.readTree(found.path, { user: "0", signal }), change);
      await to.files.writeTree(place?.directory ?? step.target, tree, { user: "0", owners: true, signal });
    }
  }
}

/** The paths that a pattern means. */
async function matches(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<readonly string[]> {
  const name = posix.basename(path);
  if (!/[*?]/.test(name)) return [path];
  const pattern = globToRegExp(name);
  const found: string[] = [];
  for await (const entry of sandbox.files.entries(posix.dirname(path), { user: "0", signal })) {
    if (typeof entry.name === "string" && pattern.test(entry.name))
      found.push(posix.join(posix.dirname(path), entry.name));
  }
  if (found.length === 0) throw new NotFoundError("NotFound", `there is no ${path} to copy from`);
  return found.sort();
}

/** What a path leads to, through links. */
async function followed(sandbox: Sandbox, path: string, signal: AbortSignal) {
  let at = path;
  for (let links = 0; links <= MAX_LINKS; links++) {
    const { type, target } = await sandbox.files.stat(at, { user: "0", signal });
    if (type !== "symlink") return { path: at, isDirectory: type === "directory" };
    if (typeof target !== "string") break;
    at = posix.resolve(posix.dirname(at), target);
  }
  throw new DsecError("InvalidArgument", `${path} leads through links to nothing that can be copied`);
}

function bytesOf(name: string): string {
  return Buffer.from(name).toString("latin1");
}
