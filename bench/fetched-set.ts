import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseLayerDigest } from "#images/digest.ts";
import { directoryStore } from "#images/store/directory.ts";
import { type ObjectStore, readObject } from "#images/store/object-store.ts";
import { pullBlob, pullMetadata } from "#images/store/pull.ts";
import { pushLayer, textContent } from "#images/store/push.ts";
import { fetched } from "#images/store/test-support/fetched.ts";
import { openLayerStore } from "#images/store.ts";

const HOUR_MS = 3_600_000;
/** Of an artifact or the meaning of a tag. */
const MAX_RECORD_BYTES = 2 ** 20;

/**
 * Sees that `<dir>/fetched` has everything that the store in `<dir>/store` has, as nodes push it to a store that is fetched from. Made
 * once; while it is made, the layers of the store lie on the disk once more. Resolves with its directory.
 */
export async function provideFetched(dir: string, note: (line: string) => void): Promise<string> {
  const to = join(dir, "fetched");
  if (existsSync(to)) return to;
  note("pushing the images anew, as to a store that is fetched from");
  const [coming, between] = [`${to}.new`, join(dir, "between")];
  for (const path of [coming, between]) rmSync(path, { recursive: true, force: true });
  mkdirSync(coming);
  {
    await using source = directoryStore(join(dir, "store"));
    await using target = fetched(directoryStore(coming));
    const signal = AbortSignal.timeout(HOUR_MS);
    using layers = await openLayerStore(between);
    for (const hex of readdirSync(join(dir, "store/layers"))) {
      const digest = parseLayerDigest(`sha256:${hex}`);
      const from = { layers, objects: source, signal };
      await pullMetadata(digest, from);
      for (const blob of (await layers.manifest(digest)).blobs) await pullBlob(blob.digest, from);
      await pushLayer(digest, { layers, objects: target, signal });
    }
    for (const prefix of ["artifacts/", "names/"]) await copyRecords(source, target, prefix, signal);
  }
  rmSync(between, { recursive: true });
  renameSync(coming, to);
  return to;
}

async function copyRecords(from: ObjectStore, to: ObjectStore, prefix: string, signal: AbortSignal): Promise<void> {
  for await (const { key } of from.list(prefix, signal)) {
    const text = (await readObject(from, key, MAX_RECORD_BYTES, signal)).toString();
    await to.put(key, textContent(text), signal);
  }
}
