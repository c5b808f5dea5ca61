import { takeCredentials } from "#images/store/credentials.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
import { openObjectStore } from "#images/store/open.ts";
import type { NodeConfig } from "./config.ts";

/**
 * The store that the settings of a node name, if any. Credentials for it are taken out of `env`, so that nothing that the node starts
 * inherits them. Throws `InvalidArgument`.
 */
export function openNodeStore(
  { store, storeEndpoint, storeRegion, storeCredentials }: NodeConfig,
  env: Record<string, string | undefined>,
): ObjectStore | undefined {
  if (store === undefined) return undefined;
  const place = { store, endpoint: storeEndpoint, region: storeRegion, credentialsFile: storeCredentials };
  return openObjectStore(place, store.startsWith("s3:") ? takeCredentials(env) : undefined);
}
