import { join } from "node:path";
import type { Logger } from "pino";
import { systemClock } from "#core/clock.ts";
import { type LayerMounts, openLayerMounts } from "#images/mounts.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
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
  const layers = place && new SharedLayers(store, place.objects);
  const remote = await openRemoteBlobs(config, place, (line) => options.log.warn({}, line));
  if (remote !== undefined) opened.use(remote);
  const mounts = await openLayerMounts({ store, runDir: config.runDir, remote });
  opened.defer(() => {
    if (!options.keepsMounts()) mounts.unmountAll();
  });
  const shared =
    place && layers && opened.use(catalogueIn({ objects: place.objects, layers, lazy: remote?.lazy }, options.log));
  const supply = new LayerSupply(store, layers);
  const closing = opened.move();
  return {
    store,
    objects: place?.objects,
    shared,
    supply,
    mounts,
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

function catalogueIn(parts: Pick<SharingOptions, "objects" | "layers" | "lazy">, log: Pick<Logger, "warn">) {
  const onFailure = (err: unknown, artifact: string) =>
    log.warn({ err, artifact }, "an artifact was not published; it is tried again");
  return new StoreCatalogue({ ...parts, clock: systemClock, onFailure });
}
