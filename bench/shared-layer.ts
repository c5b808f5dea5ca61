import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { cachedBytes, forgetCached } from "#host/sys/page-cache.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, output } from "#tests/support/sandbox.ts";
import { parseFields } from "./memory.ts";
import { tarOf } from "./source-tree.ts";

const MIB = 1024 * 1024;
const LAYER_BYTES = 200_000_000;
const CLONES = 10;
/** A guest has room for all of what it reads: with less it would give some back, and disks would look better than they are. */
const MEMORY_MIB = 400;
const WORKSPACE = "shared-layer";

/** What reading a layer costs the host, in MiB: pages of files, and memory of the monitors' own. */
export interface LayerMemory {
  readonly one: { readonly cachedMiB: number; readonly ownMiB: number };
  readonly ten: { readonly cachedMiB: number; readonly ownMiB: number };
}

/** Memory of one clone, and then of ten, that each read a file of 200 MB in a layer of theirs. */
export async function measureSharedLayer(node: TestNode): Promise<LayerMemory> {
  const archive = tarOf([["data/file", randomBytes(LAYER_BYTES)]]);
  await node.client.artifacts.import(archive, { name: WORKSPACE, kind: "workspace" });
  // From the second on they go on from a template of their environment.
  for (let warming = 0; warming < 2; warming++) await (await create(node)).remove();
  return { one: await reading(node, 1), ten: await reading(node, CLONES) };
}

/** Of both kinds of memory together, what ten take for each that one takes. */
export function sharedLayerRatio({ one, ten }: LayerMemory): number {
  return (ten.cachedMiB + ten.ownMiB) / (one.cachedMiB + one.ownMiB);
}

function create(node: TestNode): Promise<Sandbox> {
  const resources = { memoryMiB: MEMORY_MIB };
  return node.client.sandboxes.create({ base: BASE, workspace: WORKSPACE, backend: "microvm", resources });
}

/** What is there of a layer's data before it is read does not count as growth, so it goes first. */
async function reading(node: TestNode, count: number): Promise<LayerMemory["one"]> {
  const clones: Sandbox[] = [];
  try {
    for (let made = 0; made < count; made++) clones.push(await create(node));
    for (const clone of clones) await output(clone, "true");
    for (const file of filesOf(node)) withFile(file, (fd) => [fsyncSync(fd), forgetCached(fd)]);
    const before = memoryOf(node, clones);
    for (const clone of clones) {
      const read = Number(await output(clone, "cat /data/file | wc -c"));
      if (read !== LAYER_BYTES) throw new Error(`a clone read ${read} bytes of ${LAYER_BYTES}`);
    }
    const after = memoryOf(node, clones);
    return { cachedMiB: after.cachedMiB - before.cachedMiB, ownMiB: after.ownMiB - before.ownMiB };
  } finally {
    for (const clone of clones) await clone.remove();
  }
}

function memoryOf(node: TestNode, clones: readonly Sandbox[]): LayerMemory["one"] {
  const cached = filesOf(node).map((file) => withFile(file, cachedBytes));
  const own = clones.map(({ id }) => {
    const { pid } = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
    return (parseFields(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")).get("Anonymous") ?? 0) * 1024;
  });
  return { cachedMiB: sum(cached) / MIB, ownMiB: sum(own) / MIB };
}

/** All that a machine of the node could have had the host read: the store's data, copies of it, disks, memory of templates. */
function filesOf(node: TestNode): readonly string[] {
  return [node.dataDir, join(node.runDir, "machine-disks")].flatMap((dir) =>
    readdirSync(dir, { recursive: true, encoding: "utf8" })
      .map((name) => join(dir, name))
      .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() === true),
  );
}

function withFile<T>(path: string, use: (fd: number) => T): T {
  const fd = openSync(path, "r");
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
