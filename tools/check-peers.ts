import type { Problem, Tree } from "./tree.ts";

const FILES = ["backend.ts", "handle.ts", "probe.ts", "config.ts"];

/** Backends look alike: a missing file is a visible gap. */
export function checkPeers(tree: Tree): readonly Problem[] {
  const backends = new Set(tree.files.flatMap(({ path }) => /^backends\/[\w-]+(?=\/)/.exec(path)?.[0] ?? []));
  return [...backends].flatMap((folder) =>
    FILES.filter((file) => tree.get(`${folder}/${file}`) === undefined).map((file) => ({
      path: folder,
      line: 1,
      rule: "peers",
      message: `${file} is missing`,
    })),
  );
}
