import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openHelperCgroup } from "#host/cgroup/helpers.ts";
import type { RemoteBlobs } from "#images/blobs/places.ts";
import { endLazyNode, openLazyNode } from "#images/lazy/lazy-node.ts";
import type { NodeConfig } from "./config.ts";
import { FILLER_FLAGS } from "./node-flags.ts";
import type { NodeStore } from "./node-store.ts";

const MIB = 1024 * 1024;

/**
 * Blobs of the node's store, as far as the node lacks them: in place in a directory, on demand out of S3. `undefined` without a store. What an
 * earlier node's sandboxes read on demand goes on, unless this node has no store for it.
 */
export async function openRemoteBlobs(
  config: NodeConfig,
  store: NodeStore | undefined,
  log: (line: string) => void,
): Promise<(RemoteBlobs & AsyncDisposable) | undefined> {
  const { runDir, dataDir, edge, imageCache, lazyBy, fetchTimeout } = config;
  const cgroup = openHelperCgroup(edge, "filler");
  if (store === undefined || store.objects.path("blobs") !== undefined) {
    await endLazyNode(runDir);
    await cgroup.remove();
    return store && { objects: store.objects, lazy: undefined, [Symbol.asyncDispose]: async () => undefined };
  }
  const lazy = await openLazyNode({
    words: [...FILLER_FLAGS, fileURLToPath(new URL("./filler.ts", import.meta.url))],
    runDir,
    cacheDir: join(dataDir, "cache"),
    cacheBytes: imageCache * MIB,
    deadlineMs: fetchTimeout,
    store: { place: store.place, credentials: store.credentials },
    mechanism: lazyBy === "auto" ? undefined : lazyBy,
    cgroup,
    log,
  });
  return { objects: store.objects, lazy, [Symbol.asyncDispose]: () => lazy[Symbol.asyncDispose]() };
}
