import { chmodSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { allEnded } from "#core/concurrency/all-ended.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { erofsMounts, mountErofs, unmountErofs } from "#host/mounts/erofs.ts";
import { BlobPlaces, type BlobState, type PlacedBlob, type RemoteBlobs } from "../blobs/places.ts";
import { type BlobDigest, hexOf, isBlobDigest, parseLayerDigest } from "../digest.ts";
import type { LayerStore } from "../store.ts";

/** What a layer's data is on this node, and how much of it. */
export interface LayerReport {
  readonly layer: LayerDigest;
  /** `lazy` while a blob of it is away, `in-place` when one is read in a shared directory; `absent`: nothing of it is here. */
  readonly state: BlobState | "absent";
  readonly isMounted: boolean;
  readonly sizeBytes: number;
  /** Of it, here or in the shared directory. */
  readonly presentBytes: number;
  /** Reads that found everything here, and reads that waited for the store; both of lazy blobs only, while some of their data is away. */
  readonly hits: number;
  readonly misses: number;
}

/** A file of a layer. */
export interface LayerFile {
  readonly path: string;
  /** Says what it holds: of equal names, equal files. */
  readonly name: string;
  readonly sizeBytes: number;
  /** All of it is here, and stays while the layer is mounted. */
  readonly isWhole: boolean;
}

/** What is mounted, and from what. */
interface Mounted {
  /** Of it, the blobs that are filled as they are read. */
  readonly lazy: readonly BlobDigest[];
  release(): void;
}

/**
 * The layers that this node has mounted, each once at `<runDir>/layers/<hex>`, shared by all sandboxes. Mounts outlive the
 * process: `openLayerMounts` finds them again.
 */
export class LayerMounts {
  readonly #store: LayerStore;
  readonly #places: BlobPlaces;
  readonly #dir: string;
  readonly #mounted: Map<LayerDigest, Mounted>;
  readonly #lost: Set<LayerDigest>;
  readonly #underWay = new Map<LayerDigest, Promise<void>>();

  /** Made by `openLayerMounts`. */
  constructor(store: LayerStore, places: BlobPlaces, found: FoundMounts) {
    this.#store = store;
    this.#places = places;
    this.#dir = found.dir;
    this.#mounted = found.mounted;
    this.#lost = found.lost;
  }

  get mounted(): Pick<ReadonlyMap<LayerDigest, unknown>, "has" | "size" | "keys"> {
    return this.#mounted;
  }

  /** Layers of earlier mounts whose readers may have got wrong data: no sandbox on one of them may go on. */
  get lost(): ReadonlySet<LayerDigest> {
    return this.#lost;
  }

  /** To be called when no sandbox is left on a lost layer: its next mount is a good one. */
  forgetLost(): void {
    for (const digest of this.#lost) rmSync(lostFile(this.#dir, digest), { force: true });
    this.#lost.clear();
  }

  /** The directories of the layers, in the given order. Rejects with `NotFound` for a layer that the store lacks. */
  async acquire(digests: readonly LayerDigest[]): Promise<string[]> {
    // At once: of layers whose data comes on demand, each waits for the store.
    await allEnded(digests.filter((digest) => !this.#mounted.has(digest)).map((digest) => this.#mountOnce(digest)));
    return digests.map((digest) => this.#target(digest));
  }

  /** The files of a layer, which is mounted, too: its metadata, then its data as the metadata numbers it. They stay while it is. */
  async files(digest: LayerDigest): Promise<readonly LayerFile[]> {
    await this.acquire([digest]);
    const devices = await this.#places.acquire(await this.#store.checkMetadata(digest));
    // The mount holds them.
    devices.release();
    const path = this.#store.metadataPath(digest);
    const whole = await this.#whole(devices.blobs);
    const metadata = { path, name: `layer-${hexOf(digest)}`, sizeBytes: (await stat(path)).size, isWhole: true };
    const data = devices.blobs.map((blob, index) => ({
      path: devices.paths[index] ?? "",
      name: `blob-${hexOf(blob.digest)}`,
      sizeBytes: blob.sizeBytes,
      isWhole: whole.has(blob.digest),
    }));
    return [metadata, ...data];
  }

  /** Those of which all is here: while they are mounted nothing of them goes. */
  async #whole(blobs: readonly PlacedBlob[]): Promise<ReadonlySet<BlobDigest>> {
    const inState = (state: BlobState) => blobs.filter((blob) => blob.state === state).map(({ digest }) => digest);
    const lazy = inState("lazy");
    // Of a filler that does not answer nothing is known.
    const parts = lazy.length === 0 ? [] : await this.#places.lazy?.report(lazy).catch(() => undefined);
    const filled = (parts ?? []).filter(({ fetchedBytes, sizeBytes }) => fetchedBytes === sizeBytes);
    return new Set([...inState("complete"), ...filled.map(({ blob }) => blob)]);
  }

  /** Unmounts every layer not in `inUse`, which names the layers of all sandboxes, those being created among them. */
  unmountUnused(inUse: ReadonlySet<LayerDigest>): void {
    for (const digest of this.#mounted.keys()) {
      if (!inUse.has(digest) && !this.#underWay.has(digest)) this.#unmount(digest);
    }
  }

  /** Unmounts all layers. Sandboxes that still run keep theirs: an overlay holds its layers by itself. */
  unmountAll(): void {
    for (const digest of this.#mounted.keys()) this.#unmount(digest);
  }

  /** What of these layers is here. */
  async report(digests: readonly LayerDigest[]): Promise<readonly LayerReport[]> {
    return await Promise.all(digests.map((digest) => this.#report(digest)));
  }

  async #report(digest: LayerDigest): Promise<LayerReport> {
    if (!(await this.#store.has(digest))) return absent(digest);
    const lazy = this.#mounted.get(digest)?.lazy;
    const blobs = (await this.#store.manifest(digest)).blobs.map((blob): PlacedBlob => {
      const isLazy = lazy?.includes(blob.digest) ?? false;
      return { ...blob, state: isLazy ? "lazy" : this.#places.stateOf(blob.digest) };
    });
    const wanted = blobs.filter(({ state }) => state === "lazy").map((blob) => blob.digest);
    const parts = wanted.length === 0 ? [] : ((await this.#places.lazy?.report(wanted)) ?? []);
    const bytesOf = (list: readonly { readonly sizeBytes: number }[]) =>
      list.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const sizeBytes = bytesOf(blobs);
    const fetched = parts.reduce((sum, { fetchedBytes }) => sum + fetchedBytes, 0);
    const away = bytesOf(blobs.filter(({ state }) => state === "lazy")) - fetched;
    const states = new Set(blobs.map(({ state }) => state));
    return {
      layer: digest,
      // What was fetched whole is as good as what was never away.
      state: away > 0 ? "lazy" : states.has("in-place") ? "in-place" : "complete",
      isMounted: lazy !== undefined,
      sizeBytes,
      presentBytes: sizeBytes - away,
      hits: parts.reduce((sum, { hits }) => sum + hits, 0),
      misses: parts.reduce((sum, { misses }) => sum + misses, 0),
    };
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
    const blobs = await this.#store.checkMetadata(digest);
    const devices = await this.#places.acquire(blobs);
    const lazy = devices.blobs.filter(({ state }) => state === "lazy").map((blob) => blob.digest);
    const target = this.#target(digest);
    await mkdir(target, { recursive: true, mode: 0o700 });
    try {
      // Before the mount: what comes after this process must know what it is.
      if (lazy.length > 0) writeFileSync(lazyFile(this.#dir, digest), JSON.stringify(lazy), { mode: 0o600 });
      mountErofs({ metadata: this.#store.metadataPath(digest), devices: devices.paths, target }, this.#mode(lazy));
    } catch (error) {
      devices.release();
      rmSync(lazyFile(this.#dir, digest), { force: true });
      throw new SandboxError("Internal", `mounting layer ${digest}`, {
        cause: error,
        hint: "dsec doctor tells whether this kernel mounts EROFS",
        details: { layer: digest },
      });
    }
    this.#mounted.set(digest, { lazy, release: devices.release });
  }

  /** Loop devices read files without asking anybody: what is not there yet would be zeros. */
  #mode(lazy: readonly BlobDigest[]): "files-first" | "files" {
    return lazy.length > 0 && this.#places.lazy?.mechanism === "fanotify" ? "files" : "files-first";
  }

  #unmount(digest: LayerDigest): void {
    const target = this.#target(digest);
    unmountErofs(target);
    this.#mounted.get(digest)?.release();
    this.#mounted.delete(digest);
    rmSync(lazyFile(this.#dir, digest), { force: true });
    removeEmpty(target);
  }

  #target(digest: LayerDigest): string {
    return join(this.#dir, hexOf(digest));
  }
}

interface FoundMounts {
  readonly dir: string;
  readonly mounted: Map<LayerDigest, Mounted>;
  readonly lost: Set<LayerDigest>;
}

/** What the mounts of a node are made from. */
export interface LayerMountsOptions {
  readonly store: LayerStore;
  readonly runDir: string;
  readonly remote?: RemoteBlobs | undefined;
}

/** Opens the layer mounts of a node, adopting those that an earlier process of it left. */
export async function openLayerMounts({ store, runDir, remote }: LayerMountsOptions): Promise<LayerMounts> {
  const dir = join(runDir, "layers");
  mkdirSync(dir, { recursive: true });
  // Files of an image keep their plain ids here, and some of them are root's and setuid: no user of the host may get at them.
  chmodSync(dir, 0o700);
  const places = new BlobPlaces(store.blobs, remote);
  const found: FoundMounts = { dir, mounted: new Map(), lost: new Set() };
  for (const { target, source } of erofsMounts(dir)) {
    const digest = digestAt(dir, target);
    if (digest === undefined) continue;
    // Loop mounts name the device: their target alone says what they are.
    const isOurs = source.startsWith("/dev/loop") || source === store.metadataPath(digest);
    if (!isOurs || found.mounted.has(digest) || !adopt(digest, found, places)) unmountErofs(target);
  }
  for (const name of readdirSync(dir)) tidy(dir, name, found);
  return new LayerMounts(store, places, found);
}

/** False for a mount that is not good any more. */
function adopt(digest: LayerDigest, { dir, mounted, lost }: FoundMounts, { lazy: node }: BlobPlaces): boolean {
  const lazy = readDigests(lazyFile(dir, digest));
  if (lazy.length > 0 && (node === undefined || node.hasGap)) {
    writeFileSync(lostFile(dir, digest), "", { mode: 0o600 });
    lost.add(digest);
    return false;
  }
  node?.adopt(lazy);
  mounted.set(digest, { lazy, release: () => node?.release(lazy) });
  return true;
}

/** What an earlier process left beside the mounts. */
function tidy(dir: string, name: string, { mounted, lost }: FoundMounts): void {
  const [hex = "", kind] = name.split(".");
  const digest = digestAt(dir, join(dir, hex));
  if (kind === "lost" && digest !== undefined) lost.add(digest);
  if (digest !== undefined && mounted.has(digest)) return;
  if (kind === "lazy") rmSync(join(dir, name));
  if (kind === undefined) removeEmpty(join(dir, name));
}

/** Says which blobs of a mount are filled as they are read. */
function lazyFile(dir: string, digest: LayerDigest): string {
  return join(dir, `${hexOf(digest)}.lazy`);
}

/** There until no sandbox is left on a layer that was lost: this process may die before. */
function lostFile(dir: string, digest: LayerDigest): string {
  return join(dir, `${hexOf(digest)}.lost`);
}

function readDigests(path: string): readonly BlobDigest[] {
  try {
    const found: unknown = JSON.parse(readFileSync(path, "utf8"));
    return Array.isArray(found) ? found.filter(isBlobDigest) : [];
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
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

function absent(layer: LayerDigest): LayerReport {
  return { layer, state: "absent", isMounted: false, sizeBytes: 0, presentBytes: 0, hits: 0, misses: 0 };
}
