import type { ArtifactKind, ImageConfig, LayerDigest } from "#core/sandbox.ts";
import { interruptible } from "./archive/source.ts";
import type { BuildLayerOptions } from "./layer.ts";
import { DEFAULT_LIMITS, type ImportLimits } from "./limits.ts";
import { importOci } from "./oci/import.ts";
import type { LayerStore } from "./store.ts";
import { tarLayer } from "./tar-layer.ts";

/** What a source can be, see `ImportOptions`. */
export type ImportFormat = "tar" | "oci";

/** How far an import is. */
export interface ImportProgress {
  readonly receivedBytes: number;
}

/** One import. */
export interface ImportOptions {
  readonly store: LayerStore;
  readonly source: AsyncIterable<Uint8Array>;
  /** `tar`: a file tree. `oci`: an OCI image layout, or what `docker save` writes, inside a tar. Either may be compressed. */
  readonly format: ImportFormat;
  /** A base loses device nodes quietly (they are counted); other kinds refuse them. Default `base`. */
  readonly kind?: ArtifactKind;
  readonly signal?: AbortSignal;
  readonly progress?: (progress: ImportProgress) => void;
  readonly limits?: ImportLimits;
  /** Which image of an archive that holds several: its tag or reference name. */
  readonly reference?: string;
  /** Tar only: entries to leave out, by path without leading `./`. */
  readonly isExcluded?: (path: string) => boolean;
  readonly finish?: BuildLayerOptions["finish"];
}

/** What an import made; the layers are in the store, lowest first. */
export interface ImportedArtifact {
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  /** Bytes of all layers in the store. */
  readonly sizeBytes: number;
  /** Bytes that came from the source. */
  readonly receivedBytes: number;
  readonly entries: number;
  readonly skippedDevices: number;
}

/** The config of artifacts that say nothing about running in them. */
export const EMPTY_CONFIG: ImageConfig = { env: {}, user: undefined, workdir: undefined };

/** Between two calls of `progress`. */
const PROGRESS_BYTES = 4 * 2 ** 20;

/**
 * Streams an archive into the store. Memory is bounded by the limits, not by the size of the input. Rejects with
 * `InvalidArgument` naming the entry when the input is damaged or asks for what no layer may hold, `TooLarge` past a limit,
 * `StorageFull`, or the signal's reason; nothing but whole layers is left in the store in any case.
 */
export async function importArtifact(options: ImportOptions): Promise<ImportedArtifact> {
  const signal = options.signal ?? new AbortController().signal;
  let receivedBytes = 0;
  let reportedBytes = 0;
  const source = interruptible(options.source, signal, (count) => {
    receivedBytes += count;
    if (receivedBytes - reportedBytes < PROGRESS_BYTES) return;
    reportedBytes = receivedBytes;
    options.progress?.({ receivedBytes });
  });
  const made =
    options.format === "tar"
      ? await importTar(options, source)
      : await importOci(layerOptions(options), source, options);
  options.progress?.({ receivedBytes });
  return { ...made, receivedBytes };
}

type Made = Omit<ImportedArtifact, "receivedBytes">;

async function importTar(options: ImportOptions, source: AsyncIterable<Uint8Array>): Promise<Made> {
  const layer = await tarLayer({ ...layerOptions(options), whiteouts: "none" }, source);
  const { digest, sizeBytes, tree, skippedDevices } = layer;
  return { layers: [digest], config: EMPTY_CONFIG, sizeBytes, entries: tree.entries, skippedDevices };
}

function layerOptions(options: ImportOptions): BuildLayerOptions {
  return {
    store: options.store,
    limits: options.limits ?? DEFAULT_LIMITS,
    whiteouts: options.format === "oci" ? "oci" : "none",
    devices: (options.kind ?? "base") === "base" ? "skip" : "refuse",
    ...(options.isExcluded === undefined ? {} : { isExcluded: options.isExcluded }),
    ...(options.finish === undefined ? {} : { finish: options.finish }),
  };
}
