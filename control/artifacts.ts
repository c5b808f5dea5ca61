import type { Clock } from "#core/clock.ts";
import type { ArtifactKind, ComputerShape, LayerDigest } from "#core/sandbox.ts";
import {
  type ArtifactRecord,
  type ArtifactTable,
  Catalogue,
  type NewArtifact,
  type SharedCatalogue,
} from "#images/catalogue.ts";
import type { Garbage } from "#images/collect.ts";
import type { OpenExport, RegistryTarget } from "#images/export/export.ts";
import type { Compression } from "#images/export/layout.ts";
import type { ImportFormat } from "#images/import.ts";
import type { LayerReport } from "#images/layers/mounts.ts";
import type { LazyStatus } from "#images/lazy/lazy-node.ts";
import type { ImportSource } from "#images/sources/source.ts";
import type { StoreCollection } from "#images/store/collect-store.ts";
import type { StateStore } from "./state/store.ts";

/** What turns bytes and packages into layers: `images/` in a node, a double in tests. */
export interface ArtifactMaker {
  /** Rejects with `InvalidArgument` for a damaged archive; nothing but whole layers is left in any case. */
  importArchive(request: ImportRequest): Promise<NewArtifact>;
  /** Rejects as `importVmImage` of `images/vm-image` does. */
  importVmImage(request: VmImageRequest): Promise<NewArtifact>;
  /** Fetches what the source names. Rejects as `importFrom` of `images/sources` does. */
  importFrom(request: SourceRequest): Promise<NewArtifact>;
  buildDebian(request: DebianRequest): Promise<NewArtifact>;
  /** Where the data of these layers is, in the same order. */
  layers(digests: readonly LayerDigest[]): Promise<readonly LayerReport[]>;
  /** Rejects with `InvalidArgument` for what an OCI image cannot say. */
  openExport(request: ExportRequest): Promise<OpenExport>;
  /** Rejects as `exportToRegistry` of `images/export` does. */
  exportToRegistry(request: ExportToRequest): Promise<void>;
  /** Removes layers that are not in `keep` and are not brand-new; resolves to what it removed. */
  collect(keep: ReadonlySet<LayerDigest>): Promise<readonly LayerDigest[]>;
  /** What `collect` would remove now. */
  garbage(keep: ReadonlySet<LayerDigest>): Promise<Garbage>;
}

/** Where nodes share artifacts and their layers. */
export interface SharedStore extends SharedCatalogue {
  /** For people; free of secrets. */
  readonly name: string;
  /** Tags that are still to be published. */
  readonly waiting: number;
  /** Rejects when the store cannot be used. */
  probe(signal: AbortSignal): Promise<void>;
  /** How data comes that is fetched as it is read; `undefined` where none is. */
  readonly onDemand: LazyStatus | undefined;
  /** Publishes an artifact and waits for it. */
  share(record: ArtifactRecord, signal: AbortSignal): Promise<void>;
  /** Brings the layers of an artifact to this node. */
  provide(record: ArtifactRecord, signal: AbortSignal): Promise<void>;
  /** Tells others which layers this control plane needs: those go on lying in the store. */
  release(keep: ReadonlySet<LayerDigest>, signal: AbortSignal): Promise<void>;
  /** Removes from the store what no tag and no node needs, or tells how much that is. Rejects with `Internal` when something needed is damaged. */
  collect(options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<StoreCollection>;
}

/** An archive on its way in. */
export interface ImportRequest {
  readonly kind: ArtifactKind;
  readonly format: ImportFormat;
  readonly source: AsyncIterable<Uint8Array>;
  /** Where the artifact begins in a sandbox; the root unless given. */
  readonly at: string | undefined;
  readonly signal: AbortSignal;
}

/** An image of a disk or a CD on its way in. */
export interface VmImageRequest {
  readonly shape: ComputerShape;
  readonly source: AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

/** From where a node fetches for somebody: `outside` leaves out its own networks. */
export type Reach = "anywhere" | "outside";

/** Something to be fetched. */
export interface SourceRequest {
  readonly reach: Reach;
  readonly kind: ArtifactKind;
  readonly source: ImportSource;
  /** Where the artifact begins in a sandbox; the root unless given. */
  readonly at: string | undefined;
  readonly signal: AbortSignal;
  readonly progress: (line: string) => void;
}

/** An artifact on its way out. */
export interface ExportRequest {
  readonly artifact: ArtifactRecord;
  readonly compression: Compression;
  readonly signal: AbortSignal;
}

/** An artifact on its way to a registry. */
export interface ExportToRequest extends ExportRequest {
  readonly reach: Reach;
  readonly target: RegistryTarget;
  readonly progress: (line: string) => void;
}

/** A tree to build; `suite` undefined: the one the node prefers. */
export interface DebianRequest {
  readonly kind: ArtifactKind;
  readonly suite: string | undefined;
  readonly include: readonly string[];
  /** Of a `vm-image`: its screen is a desktop. */
  readonly desktop: boolean;
  readonly signal: AbortSignal;
  readonly progress: (line: string) => void;
}

const PREFIX = "artifact/";

/** The catalogue of artifacts, kept in the state store. */
export function catalogueOf(state: StateStore, clock: Clock, shared: SharedCatalogue | undefined): Catalogue {
  return new Catalogue(artifactTable(state), clock, shared);
}

function artifactTable(state: StateStore): ArtifactTable {
  return {
    async get(key) {
      const entry = await state.get(PREFIX + key);
      return entry === undefined ? undefined : recordOf(entry.value);
    },
    async put(key, record) {
      await state.put(PREFIX + key, JSON.stringify(record), "any");
    },
    async update(key, change) {
      for (;;) {
        const entry = await state.get(PREFIX + key);
        const changed = entry && change(recordOf(entry.value));
        if (entry === undefined || changed === undefined) return;
        if ((await state.put(PREFIX + key, JSON.stringify(changed), entry.revision)) !== undefined) return;
      }
    },
    async remove(key) {
      const entry = await state.get(PREFIX + key);
      return entry !== undefined && (await state.delete(PREFIX + key, "any"));
    },
    async list(prefix) {
      return (await state.list(PREFIX + prefix)).map((entry) => recordOf(entry.value));
    },
  };
}

/** JSON leaves out what is undefined, and the record's type does not; records of older versions have less. */
function recordOf(json: string): ArtifactRecord {
  const record = JSON.parse(json) as ArtifactRecord;
  const { labels = {}, parents = [], taggedAtMs = record.createdAtMs, isPublished = false } = record;
  const { env, user, workdir, ...more } = record.config;
  return { ...record, labels, parents, taggedAtMs, isPublished, config: { env, user, workdir, ...more } };
}
