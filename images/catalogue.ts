import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind, ImageConfig, LayerDigest } from "#core/sandbox.ts";
import { canonicalJson, sha256Hex } from "./digest.ts";
import { formatReference, parseReference, type Reference } from "./reference.ts";

/** A named part of environments. */
export interface ArtifactRecord {
  readonly project: string;
  readonly name: string;
  readonly tag: string;
  readonly kind: ArtifactKind;
  /** `sha256:` of kind, layers and config: equal artifacts have equal digests whatever they are called. */
  readonly digest: string;
  /** Lowest first. */
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  /** Of all layers in the store. */
  readonly sizeBytes: number;
  readonly createdAtMs: number;
  /** Where it came from, for people: `debian bookworm python3`, `tar upload`, … */
  readonly provenance: string;
}

/** What a control plane's state offers to the catalogue: rows by key, each replaced as a whole. */
export interface ArtifactTable {
  get(key: string): Promise<ArtifactRecord | undefined>;
  /** Replaces what is there. */
  put(key: string, record: ArtifactRecord): Promise<void>;
  /** False when there was none. */
  remove(key: string): Promise<boolean>;
  /** All rows whose key starts with `prefix`, by key. */
  list(prefix: string): Promise<readonly ArtifactRecord[]>;
}

/** An artifact before it has a name. */
export type NewArtifact = Omit<ArtifactRecord, "name" | "tag" | "project" | "digest" | "createdAtMs">;

/** Artifacts of this project are seen by every other one; only its own members change them. */
export const SHARED_PROJECT = "shared";

/** Names for artifacts. A name belongs to a project; what a project has hides what the shared project has. */
export class Catalogue {
  readonly #table: ArtifactTable;
  readonly #clock: Clock;

  constructor(table: ArtifactTable, clock: Clock) {
    this.#table = table;
    this.#clock = clock;
  }

  /** Adds an artifact under `reference`, or moves the name to it. */
  async put(project: string, reference: string, artifact: NewArtifact): Promise<ArtifactRecord> {
    const { name, tag } = parseReference(reference);
    const { kind, layers, config } = artifact;
    const digest = `sha256:${sha256Hex(canonicalJson({ kind, layers, config }))}`;
    const record = { ...artifact, project, name, tag, digest, createdAtMs: this.#clock.now() };
    await this.#table.put(keyOf(project, { name, tag }), record);
    return record;
  }

  /** The artifact that `debian` (the same as `debian:latest`) means in a project. Rejects with `NotFound`. */
  async resolve(project: string, reference: string): Promise<ArtifactRecord> {
    const parsed = parseReference(reference);
    for (const scope of new Set([project, SHARED_PROJECT])) {
      const found = await this.#table.get(keyOf(scope, parsed));
      if (found !== undefined) return found;
    }
    throw unknownArtifact(parsed);
  }

  /** What a project sees, its own first, by name. */
  async list(project: string): Promise<readonly ArtifactRecord[]> {
    const own = await this.#table.list(`${project}/`);
    if (project === SHARED_PROJECT) return own;
    const hidden = new Set(own.map(formatReference));
    const shared = await this.#table.list(`${SHARED_PROJECT}/`);
    return [...own, ...shared.filter((record) => !hidden.has(formatReference(record)))];
  }

  /** Takes the name away from the project; layers stay until they are collected. Rejects with `NotFound`. */
  async remove(project: string, reference: string): Promise<void> {
    const parsed = parseReference(reference);
    if (!(await this.#table.remove(keyOf(project, parsed)))) throw unknownArtifact(parsed);
  }

  /** Every layer that an artifact of any project needs. */
  async layers(): Promise<ReadonlySet<LayerDigest>> {
    return new Set((await this.#table.list("")).flatMap((record) => record.layers));
  }
}

/** A table in memory: for tests and for a node without state. */
export class MemoryArtifactTable implements ArtifactTable {
  readonly #rows = new Map<string, ArtifactRecord>();

  async get(key: string): Promise<ArtifactRecord | undefined> {
    return this.#rows.get(key);
  }

  async put(key: string, record: ArtifactRecord): Promise<void> {
    this.#rows.set(key, record);
  }

  async remove(key: string): Promise<boolean> {
    return this.#rows.delete(key);
  }

  async list(prefix: string): Promise<readonly ArtifactRecord[]> {
    const keys = [...this.#rows.keys()].filter((key) => key.startsWith(prefix)).sort();
    return keys.flatMap((key) => this.#rows.get(key) ?? []);
  }
}

function keyOf(project: string, { name, tag }: Reference): string {
  return `${project}/${name}:${tag}`;
}

function unknownArtifact(reference: Reference): SandboxError {
  return new SandboxError("NotFound", `no artifact ${formatReference(reference)}`, {
    hint: "dsec image ls shows what there is; dsec image build and dsec image import add to it",
    details: { artifact: formatReference(reference) },
  });
}
