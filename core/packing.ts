import type { WireError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { ImageConfig, LayerDigest, SandboxSpec } from "#core/sandbox.ts";

/** What is left out of a snapshot unless it is kept by name; `images/pack/scrub.ts` has the paths. */
export const SCRUB_RULES = ["credentials", "history"] as const;
export type ScrubRule = (typeof SCRUB_RULES)[number];

/** What of a sandbox's changes to pack, and how. */
export interface PackOptions {
  /** Glob patterns of paths to leave out, with all that is below them. */
  readonly exclude: readonly string[];
  /** Rules that are not applied. */
  readonly keep: readonly ScrubRule[];
  /** All processes are held still for the moment; false: it is taken as it runs. */
  readonly consistent: boolean;
}

/** What was left out. */
export interface Skipped {
  /** Matched a pattern; what is below is not counted. */
  readonly excluded: number;
  /** Matched a rule; what is below is not counted. */
  readonly scrubbed: number;
  /** Sockets and devices: what listened on them did not come along. */
  readonly special: number;
}

/** An environment made of a sandbox's layers and one more, of what it changed. */
export interface PackedDiff {
  /** Lowest first. */
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  /** Of all layers in the store. */
  readonly sizeBytes: number;
  /** The layer of the changes, the last; in a long chain it has those of earlier packs, too. */
  readonly layer: LayerDigest;
  /** Files, directories, links and deletions in it. */
  readonly entries: number;
  /** Of the files, holes included. */
  readonly dataBytes: number;
  /** How long the sandbox was held still. */
  readonly frozenMs: number;
  readonly skipped: Skipped;
}

/** A sandbox to be made of another one: it has everything of that but the id and these labels beside its own. */
export interface ForkChild {
  readonly id: SandboxId;
  readonly labels: Readonly<Record<string, string>>;
}

/** Which nodes may hold the forks of a sandbox: its own and then others, its own alone, or others alone. */
export const FORK_NODES = ["any", "same", "other"] as const;
export type ForkNodes = (typeof FORK_NODES)[number];

/**
 * Whether a fork makes layers of the same instant, too, and puts them where other nodes find them: `if-full` when the node has no room
 * for some of the children.
 */
export const FORK_SNAPSHOTS = ["never", "if-full", "always"] as const;
export type ForkSnapshot = (typeof FORK_SNAPSHOTS)[number];

/** How to fork. */
export interface ForkHow {
  readonly snapshot: ForkSnapshot;
  /** Children are saved before they run, as if paused: whatever is asked of one resumes it. Refused by name where processes do not come along. */
  readonly paused?: boolean;
  /** False: they begin with the files alone, also where processes could come along. */
  readonly memory?: boolean;
}

/** What came of a fork: for each child, in the order asked for, nothing when it is ready, or why there is none. */
export interface Forked {
  readonly frozenMs: number;
  readonly outcomes: readonly { readonly error?: WireError }[];
  /** For children on other nodes: all that the sandbox is, lowest first, in the store; or why there are no such layers. */
  readonly snapshot?: { readonly layers: readonly LayerDigest[] } | { readonly error: WireError };
}

/** What a child is made of: called by its id, as its parent is, unless the parent was given a name. */
export function childSpec(parent: SandboxSpec, { id, labels }: ForkChild): SandboxSpec {
  const hostname = parent.hostname === parent.id ? id : parent.hostname;
  return { ...parent, id, hostname, labels: { ...parent.labels, ...labels }, parent: parent.id };
}

/**
 * What a backend may be able to do with what its sandboxes write. Calls may overlap with any other call, of the same sandbox too:
 * one that is destroyed meanwhile lets them fail.
 */
export interface Packing {
  /**
   * Makes a layer of what a sandbox has written, all of it as it was at one instant. Rejects with `NotFound` for a sandbox that
   * has nothing, `Unavailable` when it does not hold still, `TooLarge`, `StorageFull`; then nothing of it is left.
   */
  pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff>;
}

/** What a backend may be able to do for forks. Calls may overlap as those of `Packing` may. */
export interface Copying {
  /** Whether `copy` works here: else a fork is made of a pack. */
  readonly copies: boolean;
  /** Whether `copy` can make layers, too, of which a sandbox on another node begins like a copy. */
  readonly packs: boolean;
  /** What runs in a sandbox goes on in its copies, and their agents know it. Else they begin with its files alone. */
  readonly processes: boolean;
  /** Copies what is saved of a paused one as well. Else it is resumed first. */
  readonly copiesSaved?: true;
  /**
   * Copies what a sandbox is, all at one instant, for sandboxes that are created with a place that says so. Shares the data. When it
   * rejects, no copy is left.
   */
  copy(spec: SandboxSpec, copies: Copies, signal: AbortSignal): Promise<Copied>;
}

/** What to make of one instant of a sandbox. */
export interface Copies {
  readonly to: readonly SandboxId[];
  /** How to make layers of it as well; only where `packs` says so. */
  readonly pack?: PackOptions | undefined;
}

/** Copies that are there. */
export interface Copied {
  /** How long the sandbox was held still. */
  readonly frozenMs: number;
  /** The pack that was asked for, which takes longer. Rejects as `Packing.pack` does. */
  readonly packed?: Promise<PackedDiff>;
}
