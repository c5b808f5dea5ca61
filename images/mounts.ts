import { chmodSync, mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { erofsMounts, mountErofs, unmountErofs } from "#host/mounts/erofs.ts";
import { hexOf, parseLayerDigest } from "./digest.ts";
import type { LayerStore } from "./store.ts";

/**
 * The layers that this node has mounted, each once at `<runDir>/layers/<hex>`, shared by all sandboxes. Mounts outlive the
 * process: `openLayerMounts` finds them again.
 */
export class LayerMounts {
  readonly #store: LayerStore;
  readonly #dir: string;
  readonly #mounted: Set<LayerDigest>;
  readonly #underWay = new Map<LayerDigest, Promise<void>>();

  constructor(store: LayerStore, dir: string, mounted: Set<LayerDigest>) {
    this.#store = store;
    this.#dir = dir;
    this.#mounted = mounted;
  }

  get mounted(): ReadonlySet<LayerDigest> {
    return this.#mounted;
  }

  /** The directories of the layers, in the given order. Rejects with `NotFound` for a layer that the store lacks. */
  async acquire(digests: readonly LayerDigest[]): Promise<string[]> {
    for (const digest of digests) {
      if (!this.#mounted.has(digest)) await this.#mountOnce(digest);
    }
    return digests.map((digest) => this.#target(digest));
  }

  /** Unmounts every layer not in `inUse`, which names the layers of all sandboxes, those being created among them. */
  unmountUnused(inUse: ReadonlySet<LayerDigest>): void {
    for (const digest of this.#mounted) {
      if (!inUse.has(digest) && !this.#underWay.has(digest)) this.#unmount(digest);
    }
  }

  /** Unmounts all layers. Sandboxes that still run keep theirs: an overlay holds its layers by itself. */
  unmountAll(): void {
    for (const digest of this.#mounted) this.#unmount(digest);
  }

  async #mountOnce(digest: LayerDigest): Promise<void> {
    const running = this.#underWay.get(digest);
    if (running !== undefined) return await running;
    const mounting = this.#mount(digest).finally(() => this.#underWay.delete(digest));
    this.#underWay.set(digest, mounting);
    await mounting;
  }

  async #mount(digest: LayerDigest): Promise<void> {
    // The manifest's own hash and the sizes are checked: a layer that was cut short is never mounted.
    await this.#store.check(digest);
    const paths = await this.#store.paths(digest);
    const target = this.#target(digest);
    await mkdir(target, { recursive: true, mode: 0o700 });
    try {
      mountErofs({ ...paths, target });
    } catch (error) {
      throw new SandboxError("Internal", `mounting layer ${digest}`, {
        cause: error,
        hint: "dsec doctor tells whether this kernel mounts EROFS",
        details: { layer: digest },
      });
    }
    this.#mounted.add(digest);
  }

  #unmount(digest: LayerDigest): void {
    const target = this.#target(digest);
    unmountErofs(target);
    this.#mounted.delete(digest);
    removeEmpty(target);
  }

  #target(digest: LayerDigest): string {
    return join(this.#dir, hexOf(digest));
  }
}

/** Opens the layer mounts of a node, adopting those that an earlier process of it left. */
export async function openLayerMounts(options: { store: LayerStore; runDir: string }): Promise<LayerMounts> {
  const dir = join(options.runDir, "layers");
  mkdirSync(dir, { recursive: true });
  // Files of an image keep their plain ids here, and some of them are root's and setuid: no user of the host may get at them.
  chmodSync(dir, 0o700);
  const mounted = new Set<LayerDigest>();
  for (const { target, source } of erofsMounts(dir)) {
    const digest = digestAt(dir, target);
    if (digest === undefined) continue;
    // Loop mounts name the device: their target alone says what they are.
    const isOurs = source.startsWith("/dev/loop") || source === options.store.metadataPath(digest);
    if (isOurs && !mounted.has(digest)) mounted.add(digest);
    else unmountErofs(target);
  }
  for (const name of readdirSync(dir)) {
    const digest = digestAt(dir, join(dir, name));
    if (digest === undefined || !mounted.has(digest)) removeEmpty(join(dir, name));
  }
  return new LayerMounts(options.store, dir, mounted);
}

function digestAt(dir: string, target: string): LayerDigest | undefined {
  const name = target.slice(dir.length + 1);
  return /^[0-9a-f]{64}$/.test(name) ? parseLayerDigest(`sha256:${name}`) : undefined;
}

/** A directory that is not empty, or busy, is somebody's: it stays. */
function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTEMPTY", "EBUSY", "ENOTDIR")) throw error;
  }
}
