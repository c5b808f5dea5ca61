import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "pino";
import { systemClock } from "#core/clock.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { type LayerMounts, openLayerMounts } from "#images/layers/mounts.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
import { StorePins } from "#images/store/pins.ts";
import { type SharingOptions, StoreCatalogue } from "#images/store/shared-catalogue.ts";
import { SharedLayers } from "#images/store/shared-layers.ts";
import { type LayerStore, openLayerStore } from "#images/store.ts";
import { LayerSupply } from "#images/supply.ts";
import type { NodeConfig } from "./config.ts";
import { openNodeStore } from "./node-store.ts";
import { openRemoteBlobs } from "./remote-blobs.ts";

/** What a node has of images. */
export interface NodeImages extends AsyncDisposable {
  /** The node's own layers. */
  readonly store: LayerStore;
  /** The store that it shares with other nodes, if any, and what it shares there. */
  readonly objects: ObjectStore | undefined;
  readonly shared: StoreCatalogue | undefined;
  /** Sees that the store has layers of this node; undefined without a store. */
  readonly share: ((layers: readonly LayerDigest[], signal: AbortSignal) => Promise<void>) | undefined;
  readonly supply: LayerSupply;
  readonly mounts: LayerMounts;
}

/** What the opening of images is told, and whom it tells. */
export interface NodeImagesOptions {
  readonly log: Pick<Logger, "warn">;
  readonly keepsMounts: () => boolean;
}

/** Opens all of it. When it is disposed, the mounts go unless `keepsMounts` says that sandboxes still need them. */
export async function openNodeImages(config: NodeConfig, options: NodeImagesOptions): Promise<NodeImages> {
  await using opened = new AsyncDisposableStack();
  const store = opened.use(await openLayerStore(join(config.dataDir, "images")));
  const place = openNodeStore(config, process.env);
  if (place !== undefined) opened.use(place.objects);
  const pins = place && new StorePins({ objects: place.objects, node: storeNode(config), clock: systemClock });
  const layers = place && pins && new SharedLayers(store, place.objects, pins);
  const remote = await openRemoteBlobs(config, place, (line) => options.log.warn({}, line));
  if (remote !== undefined) opened.use(remote);
  const mounts = await openLayerMounts({ store, runDir: config.runDir, remote });
  opened.defer(() => {
    if (!options.keepsMounts()) mounts.unmountAll();
  });
  const shared =
    place &&
    layers &&
    pins &&
    opened.use(
      catalogueIn(
        { objects: place.objects, layers, pins, lazy: remote?.lazy, graceMs: config.storeGrace },
        options.log,
      ),
    );
  const supply = new LayerSupply(store, layers);
  const closing = opened.move();
  return {
    store,
    objects: place?.objects,
    shared,
    share: layers && ((digests, signal) => layers.push(digests, signal)),
    supply,
    mounts,
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

/** What this node is called in stores: edges of two control planes may have the same id. */
function storeNode({ dataDir }: NodeConfig): string {
  const file = join(dataDir, "store-node");
  try {
    writeFileSync(file, randomBytes(8).toString("hex"), { flag: "wx", mode: 0o600, flush: true });
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
  const name = readFileSync(file, "utf8");
  if (/^[0-9a-f]{16}$/.test(name)) return name;
  throw new SandboxError("FailedPrecondition", `${file} does not say what this node is called in stores`, {
    hint: "remove the file: the node takes a new name, and forgets the old one's claims in thirty days",
  });
}

function catalogueIn(parts: Omit<SharingOptions, "clock" | "onFailure">, log: Pick<Logger, "warn">) {
  const onFailure = (err: unknown, artifact: string) =>
    log.warn({ err, artifact }, "an artifact was not published; it is tried again");
  return new StoreCatalogue({ ...parts, clock: systemClock, onFailure });
}
