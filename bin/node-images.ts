import { join } from "node:path";
import { type LayerMounts, openLayerMounts } from "#images/mounts.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
import { type LayerStore, openLayerStore } from "#images/store.ts";
import type { NodeConfig } from "./config.ts";
import { openNodeStore } from "./node-store.ts";
import { openRemoteBlobs } from "./remote-blobs.ts";

/** What a node has of images. */
export interface NodeImages extends AsyncDisposable {
  /** The node's own layers. */
  readonly store: LayerStore;
  /** What it shares with other nodes, if anything. */
  readonly objects: ObjectStore | undefined;
  readonly mounts: LayerMounts;
}

/** Opens all of it. When it is disposed, the mounts go unless `keepsMounts` says that sandboxes still need them. */
export async function openNodeImages(
  config: NodeConfig,
  options: { readonly log: (line: string) => void; readonly keepsMounts: () => boolean },
): Promise<NodeImages> {
  await using opened = new AsyncDisposableStack();
  const store = opened.use(await openLayerStore(join(config.dataDir, "images")));
  const shared = openNodeStore(config, process.env);
  if (shared !== undefined) opened.use(shared.objects);
  const remote = await openRemoteBlobs(config, shared, options.log);
  if (remote !== undefined) opened.use(remote);
  const mounts = await openLayerMounts({ store, runDir: config.runDir, remote });
  opened.defer(() => {
    if (!options.keepsMounts()) mounts.unmountAll();
  });
  const closing = opened.move();
  return { store, objects: shared?.objects, mounts, [Symbol.asyncDispose]: () => closing.disposeAsync() };
}
