import type { ArtifactKind, ImageConfig, LayerDigest } from "#core/sandbox.ts";
import { badInput } from "#core/tar/entry.ts";
import { interruptible } from "./archive/source.ts";
import { packageLayer } from "./deb/import.ts";
import type { BuildLayerOptions, BuiltLayer } from "./layers/layer.ts";
import { tarLayer } from "./layers/tar-layer.ts";
import { DEFAULT_LIMITS, type ImportLimits } from "./limits.ts";
import { importOci } from "./oci/import.ts";
import type { LayerStore } from "./store.ts";

/** What a source can be, see `ImportOptions`. */
export type ImportFormat = "tar" | "oci" | "deb";

/** How far an import is. */
export interface ImportProgress {
  readonly receivedBytes: number;
}

/** One import. */
export interface ImportOptions {
  readonly store: LayerStore;
  readonly source: AsyncIterable<Uint8Array>;
  /**
   * `tar`: a file tree. `oci`: an OCI image layout, or what `docker save` writes, inside a tar. Either may be
   * compressed. `deb`: Debian packages, one after the other, for workspaces and toolkits.
   */
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
  const made = await IMPORTERS[options.format](options, source);
  options.progress?.({ receivedBytes });
  return { ...made, receivedBytes };
}

type Made = Omit<ImportedArtifact, "receivedBytes">;
type Importer = (options: ImportOptions, source: AsyncIterable<Uint8Array>) => Promise<Made>;

const IMPORTERS: Readonly<Record<ImportFormat, Importer>> = {
  tar: importTar,
  oci: (options, source) => importOci(layerOptions(options), source, options),
  deb: importPackages,
};

async function importTar(options: ImportOptions, source: AsyncIterable<Uint8Array>): Promise<Made> {
  return madeOf(await tarLayer(layerOptions(options), source));
}

async function importPackages(options: ImportOptions, source: AsyncIterable<Uint8Array>): Promise<Made> {
  checkPackageKind(options.kind ?? "base");
  return madeOf(await packageLayer(layerOptions(options), [source]));
}

/** Throws `InvalidArgument` for a base or snapshot: packages whose scripts were not run make none. */
export function checkPackageKind(kind: ArtifactKind): void {
  if (kind === "toolkit" || kind === "workspace") return;
  throw badInput(
    "Debian packages alone make no base",
    "import them as a toolkit; dsec image build --debian makes a base with packages",
  );
}

/** An artifact of one layer that says nothing about running in it. */
export function madeOf({ digest, sizeBytes, tree, skippedDevices }: BuiltLayer): Made {
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
