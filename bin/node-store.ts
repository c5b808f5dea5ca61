import { type S3Credentials, takeCredentials } from "#images/store/credentials.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
import { openObjectStore, type StorePlace } from "#images/store/open.ts";
import type { NodeConfig } from "./config.ts";

/** The store of a node, and how another process opens it. */
export interface NodeStore {
  readonly objects: ObjectStore;
  readonly place: StorePlace;
  readonly credentials: S3Credentials | undefined;
}

/**
 * The store that the settings of a node name, if any. Credentials for it are taken out of `env`, so that nothing that the node starts
 * inherits them. Throws `InvalidArgument`.
 */
export function openNodeStore(
  { store, storeEndpoint, storeRegion, storeCredentials }: NodeConfig,
  env: Record<string, string | undefined>,
): NodeStore | undefined {
  if (store === undefined) return undefined;
  const place = { store, endpoint: storeEndpoint, region: storeRegion, credentialsFile: storeCredentials };
  const credentials = store.startsWith("s3:") ? takeCredentials(env) : undefined;
  return { objects: openObjectStore(place, credentials), place, credentials };
}
