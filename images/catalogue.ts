import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind, ImageConfig, LayerDigest } from "#core/sandbox.ts";
import { canonicalJson, sha256Hex } from "./digest.ts";
import { type FoundBy, formatReference, parseFoundBy, parseReference, type Reference } from "./reference.ts";

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
  /** When the tag came to mean this artifact. */
  readonly taggedAtMs: number;
  /** Where it came from, for people: `debian bookworm python3`, `tar upload`, … */
  readonly provenance: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Digests of the artifacts that it was made of. */
  readonly parents: readonly string[];
  /** True when the store that nodes share has the tag with this meaning, or had it. */
  readonly isPublished: boolean;
}

/**
 * What a control plane's state offers to the catalogue: rows by key, each replaced as a whole. A tag has a row, and so has every
 * digest under a name: that one stays when the tag moves.
 */
export interface ArtifactTable {
  get(key: string): Promise<ArtifactRecord | undefined>;
  /** Replaces what is there. */
  put(key: string, record: ArtifactRecord): Promise<void>;
  /** Puts what `change` makes of the row, in one step; nothing when there is none, or when it makes `undefined` of it. */
  update(key: string, change: (record: ArtifactRecord) => ArtifactRecord | undefined): Promise<void>;
  /** False when there was none. */
  remove(key: string): Promise<boolean>;
  /** All rows whose key starts with `prefix`, by key. */
  list(prefix: string): Promise<readonly ArtifactRecord[]>;
}

/** An artifact before it has a name. */
export type NewArtifact = Pick<ArtifactRecord, "kind" | "layers" | "config" | "sizeBytes" | "provenance"> &
  Partial<Pick<ArtifactRecord, "labels" | "parents">>;

/** Where the catalogues of several control planes meet. */
export interface SharedCatalogue {
  /** Begins to share what a tag means from now on, and calls `done` then. Never throws: what fails is tried again. */
  publish(record: ArtifactRecord, done: () => Promise<void>): void;
  /** Takes a tag away. Rejects with `Unavailable`. */
  withdraw(project: string, reference: Reference): Promise<void>;
  /** What others shared; `undefined` for nothing. Rejects with `Unavailable`, or `Internal` for what was damaged. */
  find(project: string, reference: FoundBy): Promise<ArtifactRecord | undefined>;
}

/** Artifacts of this project are seen by every other one; only its own members change them. */
export const SHARED_PROJECT = "shared";

/** Names an artifact by what it is. */
export function artifactDigest({ kind, layers, config }: Pick<ArtifactRecord, "kind" | "layers" | "config">): string {
  return `sha256:${sha256Hex(canonicalJson({ kind, layers, config }))}`;
}

/**
 * Names for artifacts. A name belongs to a project; what a project has hides what the shared project has. Tags move, digests do not:
 * `name@sha256:…` is found after its tag moved, until `prune` finds that nothing needs it.
 */
export class Catalogue {
  readonly #table: ArtifactTable;
  readonly #clock: Clock;
  readonly #shared: SharedCatalogue | undefined;

  constructor(table: ArtifactTable, clock: Clock, shared?: SharedCatalogue) {
    this.#table = table;
    this.#clock = clock;
    this.#shared = shared;
  }

  /** Adds an artifact under `reference`, or moves the tag to it. `InvalidArgument` for one that is among its own ancestors. */
  async put(project: string, reference: string, artifact: NewArtifact): Promise<ArtifactRecord> {
    const { name, tag } = parseReference(reference);
    const { labels = {}, parents = [] } = artifact;
    const digest = artifactDigest(artifact);
    await this.#checkAncestors(project, digest, parents);
    const now = this.#clock.now();
    const times = { createdAtMs: now, taggedAtMs: now };
    const made = { ...artifact, project, name, tag, digest, labels, parents, ...times, isPublished: false };
    await this.#keep(made);
    this.#publish(made);
    return made;
  }

  /** Makes `target` mean what `source` means, in `project` or in another one. Rejects with `NotFound`. */
  async tag(project: string, source: string, target: string, targetProject = project): Promise<ArtifactRecord> {
    const { name, tag } = parseReference(target);
    const found = await this.resolve(project, source);
    const taggedAtMs = this.#clock.now();
    const tagged = { ...found, project: targetProject, name, tag, taggedAtMs, isPublished: false };
    await this.#keep(tagged);
    this.#publish(tagged);
    return tagged;
  }

  /** The artifact that `debian` (the same as `debian:latest`) means in a project. Rejects with `NotFound`. */
  async resolve(project: string, reference: string): Promise<ArtifactRecord> {
    const parsed = parseFoundBy(reference);
    const scopes = [...new Set([project, SHARED_PROJECT])];
    for (const scope of scopes) {
      const found = await this.#table.get(keyOf(scope, parsed));
      if (found !== undefined) return found;
    }
    return await this.#fetch(scopes, parsed);
  }

  /** As `resolve`, but what others shared goes before what is known here. */
  async refresh(project: string, reference: string): Promise<ArtifactRecord> {
    return await this.#fetch([...new Set([project, SHARED_PROJECT])], parseFoundBy(reference));
  }

  /** The tags that a project sees, its own first, by name. */
  async list(project: string): Promise<readonly ArtifactRecord[]> {
    const own = (await this.#table.list(`${project}/`)).filter(isTagged);
    if (project === SHARED_PROJECT) return own;
    const hidden = new Set(own.map(formatReference));
    const shared = (await this.#table.list(`${SHARED_PROJECT}/`)).filter(isTagged);
    return [...own, ...shared.filter((record) => !hidden.has(formatReference(record)))];
  }

  /** Goes on with what was not published when the control plane ended, or had no store yet. */
  async resume(): Promise<void> {
    for (const record of await this.#table.list("")) {
      if (isTagged(record) && !record.isPublished) this.#publish(record);
    }
  }

  /** Notes that others have what the tag of a record means. */
  async published(record: ArtifactRecord): Promise<void> {
    await this.#table.update(keyOf(record.project, record), (now) =>
      now.taggedAtMs === record.taggedAtMs && now.digest === record.digest ? { ...now, isPublished: true } : undefined,
    );
  }

  /** Takes the tag away from the project; what it meant stays until it is pruned. Rejects with `NotFound`. */
  async remove(project: string, reference: string): Promise<void> {
    const parsed = parseFoundBy(reference);
    if (!("tag" in parsed)) {
      throw new SandboxError("InvalidArgument", `${reference} is no tag, and only tags are removed`, {
        hint: "an artifact goes by itself when no tag, sandbox or other artifact needs it any more",
      });
    }
    // From there first: what is still there would come back with the next use.
    await this.#shared?.withdraw(project, parsed);
    if (!(await this.#table.remove(keyOf(project, parsed)))) throw unknownArtifact(parsed);
  }

  /**
   * Takes away the tags of every project whose names begin with `prefix` and that were last set before `setBeforeMs`. What they meant is
   * pruned as ever: who found it by its digest goes on. Ends early while others cannot be told.
   */
  async expire(prefix: string, setBeforeMs: number): Promise<void> {
    for (const record of await this.#table.list("")) {
      if (!isTagged(record) || !record.name.startsWith(prefix) || record.taggedAtMs >= setBeforeMs) continue;
      try {
        await this.remove(record.project, formatReference(record));
      } catch (error) {
        if (error instanceof SandboxError && error.kind === "Unavailable") return;
        if (!(error instanceof SandboxError) || error.kind !== "NotFound") throw error;
      }
    }
  }

  /**
   * Forgets artifacts that no tag means, that are not in use, that no other one was made of, and that are older than
   * `madeBeforeMs`: a younger one may be about to get its tag. `inUse` is asked after the tags were looked at: what is found by a tag
   * later than that is kept for its tag.
   */
  async prune(inUse: () => Promise<ReadonlySet<string>>, madeBeforeMs: number): Promise<void> {
    for (const record of (await this.#sorted(inUse, madeBeforeMs)).unneeded) {
      await this.#table.remove(keyOf(record.project, { name: record.name, digest: record.digest }));
    }
  }

  /** Every layer that an artifact of any project would need after such a pruning. */
  async layersPruned(
    inUse: () => Promise<ReadonlySet<string>>,
    madeBeforeMs: number,
  ): Promise<ReadonlySet<LayerDigest>> {
    return new Set((await this.#sorted(inUse, madeBeforeMs)).kept.flatMap((record) => record.layers));
  }

  async #sorted(inUse: () => Promise<ReadonlySet<string>>, madeBeforeMs: number) {
    const records = await this.#table.list("");
    const needed = new Set([...(await inUse()), ...records.filter(isTagged).map((record) => record.digest)]);
    // A Set goes on to what is added while it is walked: parents of parents.
    for (const digest of needed) {
      for (const record of records) if (record.digest === digest) for (const above of record.parents) needed.add(above);
    }
    const isKept = (record: ArtifactRecord) =>
      isTagged(record) || needed.has(record.digest) || record.taggedAtMs >= madeBeforeMs;
    return { kept: records.filter(isKept), unneeded: records.filter((record) => !isKept(record)) };
  }

  /** Every layer that an artifact of any project needs. */
  async layers(): Promise<ReadonlySet<LayerDigest>> {
    return new Set((await this.#table.list("")).flatMap((record) => record.layers));
  }

  async #fetch(scopes: readonly string[], parsed: FoundBy): Promise<ArtifactRecord> {
    for (const scope of scopes) {
      const found = await this.#shared?.find(scope, parsed);
      if (found === undefined) continue;
      if ("tag" in parsed) await this.#keep(found);
      else await this.#table.put(keyOf(scope, parsed), { ...found, tag: "" });
      return found;
    }
    throw unknownArtifact(parsed);
  }

  #publish(record: ArtifactRecord): void {
    this.#shared?.publish(record, () => this.published(record));
  }

  /** The digest's row first: a tag never means what cannot be found by its digest. */
  async #keep(record: ArtifactRecord): Promise<void> {
    const { project, name, tag, digest } = record;
    await this.#table.put(keyOf(project, { name, digest }), { ...record, tag: "" });
    await this.#table.put(keyOf(project, { name, tag }), record);
  }

  async #checkAncestors(project: string, digest: string, parents: readonly string[]): Promise<void> {
    if (parents.length === 0) return;
    const scopes = [...new Set([project, SHARED_PROJECT])];
    const records = (await Promise.all(scopes.map((scope) => this.#table.list(`${scope}/`)))).flat();
    const ancestors = new Set(parents);
    for (const above of ancestors) {
      for (const record of records) if (record.digest === above) for (const more of record.parents) ancestors.add(more);
    }
    if (!ancestors.has(digest)) return;
    throw new SandboxError("InvalidArgument", `the artifact ${digest} would be its own ancestor`, {
      hint: "name only what it was made of as its parents",
      details: { digest },
    });
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

  async update(key: string, change: (record: ArtifactRecord) => ArtifactRecord | undefined): Promise<void> {
    const record = this.#rows.get(key);
    const changed = record && change(record);
    if (changed !== undefined) this.#rows.set(key, changed);
  }

  async remove(key: string): Promise<boolean> {
    return this.#rows.delete(key);
  }

  async list(prefix: string): Promise<readonly ArtifactRecord[]> {
    const keys = [...this.#rows.keys()].filter((key) => key.startsWith(prefix)).sort();
    return keys.flatMap((key) => this.#rows.get(key) ?? []);
  }
}

function isTagged(record: ArtifactRecord): boolean {
  return record.tag !== "";
}

function keyOf(project: string, reference: FoundBy): string {
  return `${project}/${formatReference(reference)}`;
}

function unknownArtifact(reference: FoundBy): SandboxError {
  return new SandboxError("NotFound", `no artifact ${formatReference(reference)}`, {
    hint: "dsec image ls shows what there is; dsec image build and dsec image import add to it",
    details: { artifact: formatReference(reference) },
  });
}
