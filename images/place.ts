import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { type Attributes, type ByteString, byteString } from "#core/tar/entry.ts";
import { MAX_NAME_BYTES } from "#core/tar/path.ts";
import { Inode } from "./erofs/inode.ts";
import { readParts, readTree, writeTree } from "./layers/retree.ts";
import type { LayerStore } from "./store.ts";

/** PATH_MAX of Linux without its terminator. */
const MAX_PATH_BYTES = 4095;
/** What a sandbox brings itself lies over whatever a layer has there. */
const OF_THE_SANDBOX = ["dev", "proc", "sys"];
/** Directories on the way that are not root's with mode 0755 in any base. */
const USUAL_MODES: Readonly<Record<string, number>> = { tmp: 0o1777, "var/tmp": 0o1777, root: 0o700 };

/**
 * The names of a path where an artifact is to begin. Throws `InvalidArgument` unless it is absolute, without `.` and `..`, and leads
 * to where a sandbox shows what its layers have.
 */
export function parsePlace(path: string): readonly ByteString[] {
  const bytes = byteString(Buffer.from(path));
  const names = bytes.split("/").filter((name) => name !== "");
  const isPath = bytes.startsWith("/") && bytes.length <= MAX_PATH_BYTES && !bytes.includes("\0");
  if (!isPath || names.some((name) => name === "." || name === ".." || name.length > MAX_NAME_BYTES)) {
    throw badPlace(path, "it is no absolute path without . and ..", "for example /repo");
  }
  if (OF_THE_SANDBOX.includes(names[0] ?? "")) {
    throw badPlace(path, "a sandbox brings its own /dev, /proc and /sys", "choose another directory");
  }
  return names;
}

/**
 * The layers with their trees beneath `names` instead of the root: new layers, of which only metadata is written. Directories on the
 * way are root's with mode 0755, but those that every system has otherwise.
 */
export async function placeLayers(
  store: LayerStore,
  layers: readonly LayerDigest[],
  names: readonly ByteString[],
): Promise<readonly LayerDigest[]> {
  if (names.length === 0) return layers;
  const placed: LayerDigest[] = [];
  for (const part of await readParts(store, layers)) {
    const { blobs } = part.manifest;
    placed.push(await writeTree(store, beneath(names, await readTree(store, part, blobs)), blobs));
  }
  return placed;
}

function beneath(names: readonly ByteString[], tree: Inode): Inode {
  let inode = tree;
  for (const [index, name] of [...names.entries()].reverse()) {
    const mode = USUAL_MODES[names.slice(0, index).join("/")] ?? 0o755;
    const attributes: Attributes = { mode, uid: 0, gid: 0, mtimeS: 0, mtimeNs: 0, xattrs: undefined };
    inode = new Inode(attributes, { type: "directory", children: new Map([[name, inode]]) });
  }
  return inode;
}

function badPlace(path: string, why: string, hint: string): SandboxError {
  return new SandboxError(
    "InvalidArgument",
    `an artifact cannot begin at ${JSON.stringify(path.slice(0, 200))}: ${why}`,
    {
      hint,
    },
  );
}
