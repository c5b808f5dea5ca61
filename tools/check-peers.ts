import type { Problem, Tree } from "./tree.ts";

const FILES = ["backend.ts", "handle.ts", "probe.ts", "config.ts"];

/** Functions stand on another backend, which probes the host, and keep nothing of theirs over a restart. */
const WITHOUT: Readonly<Record<string, readonly string[]>> = { "backends/fncall": ["handle.ts", "probe.ts"] };

/** Backends look alike: a missing file is a visible gap. */
export function checkPeers(tree: Tree): readonly Problem[] {
  const backends = new Set(tree.files.flatMap(({ path }) => /^backends\/[\w-]+(?=\/)/.exec(path)?.[0] ?? []));
  return [...backends].flatMap((folder) =>
    FILES.filter((file) => WITHOUT[folder]?.includes(file) !== true && tree.get(`${folder}/${file}`) === undefined).map(
      (file) => ({
        path: folder,
        line: 1,
        rule: "peers",
        message: `${file} is missing`,
      }),
    ),
  );
}
