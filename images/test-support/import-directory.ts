import type { ArtifactKind } from "#core/sandbox.ts";
import { EMPTY_CONFIG, type ImportedArtifact } from "../import.ts";
import { buildLayer } from "../layers/layer.ts";
import { DEFAULT_LIMITS, type ImportLimits } from "../limits.ts";
import type { LayerStore } from "../store.ts";
import { type WalkOptions, walkDirectory } from "./walk.ts";

/** Where the layer goes, and what it may hold. */
export interface ImportDirectoryOptions extends WalkOptions {
  readonly store: LayerStore;
  readonly kind?: ArtifactKind;
  readonly limits?: ImportLimits;
}

/** Imports a directory of this host as one layer. Rejects as `importArtifact` does; links are never followed. */
export async function importDirectory(directory: string, options: ImportDirectoryOptions): Promise<ImportedArtifact> {
  const built = await buildLayer(
    {
      store: options.store,
      limits: options.limits ?? DEFAULT_LIMITS,
      whiteouts: "none",
      devices: (options.kind ?? "base") === "base" ? "skip" : "refuse",
    },
    (feed) => walkDirectory(directory, feed, options),
  );
  const { digest, sizeBytes, tree, skippedDevices } = built;
  return { layers: [digest], config: EMPTY_CONFIG, sizeBytes, receivedBytes: 0, entries: tree.entries, skippedDevices };
}
