import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { LayerDigest } from "#core/sandbox.ts";
import { mountErofs, unmountErofs } from "#host/mounts/erofs.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import { readXattrs } from "#host/sys/xattrs.ts";
import type { LayerStore } from "../store.ts";
import { run, temporaryDirectory } from "./fixtures.ts";

/** What can be seen of one file, as text: equal trees give equal maps. */
export type Snapshot = ReadonlyMap<string, string>;

/** What is left out: owners, or the counts of names. */
export interface SnapshotOptions {
  readonly withOwners?: boolean;
  readonly withCounts?: boolean;
}

/** Everything below a directory, by path as `latin1`. Files with several names show the first one of them. */
export function snapshot(directory: string, options: SnapshotOptions = {}): Snapshot {
  const found = new Map<string, string>();
  const names = new Map<string, string>();
  const visit = (at: Buffer, path: string): void => {
    const stats = lstatSync(at, { bigint: true });
    const id = `${stats.dev}:${stats.ino}`;
    const first = stats.isDirectory() ? path : (names.get(id) ?? path);
    names.set(id, first);
    const xattrs = [...(readXattrs(at) ?? [])].map(([name, value]) => `${name}=${Buffer.from(value).toString("hex")}`);
    const owner = options.withOwners === false ? "" : `${stats.uid}:${stats.gid}`;
    const count = options.withCounts === false ? "" : stats.nlink;
    const size = stats.isFile() || stats.isSymbolicLink() ? stats.size : "-";
    const content = stats.isFile()
      ? createHash("sha256").update(readFileSync(at)).digest("hex")
      : stats.isSymbolicLink()
        ? readlinkSync(at, { encoding: "latin1" })
        : String(stats.rdev);
    found.set(
      path,
      [stats.mode.toString(8), owner, size, stats.mtimeNs, count, first, xattrs.sort(), content].join(" "),
    );
    if (!stats.isDirectory()) return;
    for (const name of readdirSync(at, { encoding: "buffer" }).sort(Buffer.compare)) {
      visit(Buffer.concat([at, Buffer.from("/"), name]), `${path}/${name.toString("latin1")}`);
    }
  };
  visit(Buffer.from(directory), "");
  return found;
}

/** Mounts a layer for the time of a test. */
export async function mounted(
  store: LayerStore,
  digest: LayerDigest,
  mode: "files-first" | "loop" = "files-first",
): Promise<{ readonly path: string } & Disposable> {
  const directory = temporaryDirectory();
  mountErofs({ ...(await store.paths(digest)), target: directory.path }, mode);
  return {
    path: directory.path,
    [Symbol.dispose]() {
      unmountErofs(directory.path);
      directory[Symbol.dispose]();
    },
  };
}

/** Visits layers, lowest first, as an overlay shows them. */
export async function withMerged(
  store: LayerStore,
  layers: readonly LayerDigest[],
  visit: (path: string) => void,
): Promise<void> {
  using stack = new DisposableStack();
  const lower: string[] = [];
  for (const digest of layers) lower.push(stack.use(await mounted(store, digest)).path);
  const target = stack.use(temporaryDirectory()).path;
  const empty = stack.use(temporaryDirectory()).path;
  mount("overlay", target, "overlay", 0, `lowerdir=${[...lower.reverse(), empty].join(":")}`);
  try {
    visit(target);
  } finally {
    unmount(target);
  }
}

/** The independent checker's verdict: throws with its output when it finds a fault. */
export async function fsck(store: LayerStore, digest: LayerDigest): Promise<void> {
  const { metadata, devices } = await store.paths(digest);
  run("fsck.erofs", ...devices.map((path) => `--device=${path}`), metadata);
}
