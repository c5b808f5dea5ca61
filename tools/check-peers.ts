import { importsOf, resolveImport, subpathsOf } from "./imports.ts";
import type { Problem, Tree } from "./tree.ts";

const FILES = ["backend.ts", "handle.ts", "probe.ts", "config.ts"];

/** Functions stand on another backend, which probes the host, and keep nothing of theirs over a restart. */
const WITHOUT: Readonly<Record<string, readonly string[]>> = { "backends/fncall": ["handle.ts", "probe.ts"] };

/** Machines of every kind are found again in one way: a part that would be a copy of a neighbour's lies below `host/`, and is taken from there. */
const TAKEN: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "backends/microvm": { "handle.ts": "host/vmm/handle.ts" },
  "backends/vm": { "handle.ts": "host/vmm/handle.ts" },
};

/** Backends look alike: a missing file is a visible gap. A part that a backend takes from elsewhere it really takes, and has no second one of. */
export function checkPeers(tree: Tree): readonly Problem[] {
  const backends = new Set(tree.files.flatMap(({ path }) => /^backends\/[\w-]+(?=\/)/.exec(path)?.[0] ?? []));
  return [...backends].flatMap((folder) =>
    FILES.flatMap((file) => {
      const message = faultOf(tree, folder, file);
      return message === undefined ? [] : [{ path: folder, line: 1, rule: "peers", message }];
    }),
  );
}

function faultOf(tree: Tree, folder: string, file: string): string | undefined {
  const isThere = tree.get(`${folder}/${file}`) !== undefined;
  const taken = TAKEN[folder]?.[file];
  if (taken === undefined)
    return isThere || WITHOUT[folder]?.includes(file) === true ? undefined : `${file} is missing`;
  if (isThere) return `${file} is there beside ${taken}`;
  return importsIn(tree, `${folder}/backend.ts`).includes(taken) ? undefined : `backend.ts does not take ${taken}`;
}

function importsIn(tree: Tree, path: string): readonly (string | undefined)[] {
  const file = tree.get(path);
  if (file === undefined) return [];
  const subpaths = subpathsOf(tree);
  return importsOf(file).map(({ specifier }) => resolveImport(specifier, path, subpaths));
}
