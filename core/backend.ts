import type { Computers } from "#core/computers.ts";
import type { GuestLink } from "#core/guest.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copying, Packing } from "#core/packing.ts";
import type { Accelerator, BackendKind, SandboxSpec } from "#core/sandbox.ts";
import type { Usage } from "#core/usage.ts";

/**
 * Runs sandboxes of one kind on one node. Calls for one sandbox never overlap; calls for two may.
 *
 * Vocabulary: a sandbox has a *handle* (plain data that the edge stores and hands back), an *agent* reached by `connect`, and
 * *resources* on the node that carry its id. The backend keeps nothing in memory that it could not find again from a handle
 * and the node, so that an edge may die between any two calls. The usual life: `create` → `connect` → … → `destroy`; after a
 * restart of the edge: `recover` → `connect` → …; what no journal knows is found by `inventory` and destroyed.
 */
export interface Backend extends AsyncDisposable {
  readonly kind: BackendKind;
  /** What the node holds of every settled sandbox of this kind; more is a leak, less a loss. */
  readonly footprint: Footprint;
  /** How many places `expect` should tell of; 0: the backend makes nothing ahead of need. */
  readonly foresight: number;
  /**
   * Tells where the next creates will be, in this order, so that the backend may begin with them. A create may still come for
   * any place. What was begun is no sandbox: it carries no id, and ends with the backend.
   */
  expect(places: readonly Place[]): void;
  /** Refuses with `FailedPrecondition` or `InvalidArgument` what this node cannot enforce. Reads the host, changes nothing. */
  check(spec: SandboxSpec): Promise<void>;
  /** Idempotent on `spec.id`. If it rejects, nothing of the sandbox is left on the node. Resolves when the agent listens. */
  create(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle>;
  /** The agent of a live sandbox. Rejects with `SandboxLost` when it is dead. */
  connect(handle: Handle, signal: AbortSignal): Promise<GuestLink>;
  /** Reattaches after an edge restart, to a paused one as well; `undefined` when the sandbox did not survive. */
  recover(handle: Handle): Promise<Handle | undefined>;
  /** Ends every process of the sandbox and frees its compute; its files stay. Safe in every state, and safe twice. */
  kill(id: SandboxId): Promise<void>;
  /** Removes everything that carries the id. Safe in every state, without a handle, and safe twice. */
  destroy(id: SandboxId): Promise<void>;
  /** Absent: the backend cannot, and callers are refused by name. */
  readonly packing?: Packing;
  /** Absent: the backend cannot fork, and callers are refused by name. */
  readonly copying?: Copying;
  /** Absent: its sandboxes have no screen, keyboard and power of their own. */
  readonly computers?: Computers;
  /** Absent: the backend cannot, and callers are refused by name. */
  readonly pausing?: Pausing;
  /** Zeros for a sandbox that is gone. */
  usage(handle: Handle): Promise<Usage>;
  /**
   * Begins to give up a part of the node's memory that a ready sandbox holds and can do without, while nobody uses it. False: there is little left of that, until
   * it is used again. Absent: what such sandboxes hold the node can take by itself.
   */
  rest?(handle: Handle): Promise<boolean>;
  /** What really exists on the node, by resource class: ids found, of live and dead sandboxes alike. */
  inventory(): Promise<Inventory>;
}

/** What a backend may be able to do with sandboxes that nobody needs for a while. */
export interface Pausing {
  /**
   * Saves the sandbox as it is at this moment, processes and all, and gives back its compute. Gives the handle of what is saved. When it
   * rejects, the sandbox goes on, unless with `SandboxLost`.
   */
  pause(handle: Handle, spec: SandboxSpec, signal: AbortSignal): Promise<Handle>;
  /**
   * Makes a saved sandbox of what `Copying.copy` made for it; nothing of it runs. When it rejects, nothing is left but that copy. Absent: the backend cannot.
   */
  keep?(spec: SandboxSpec, signal: AbortSignal): Promise<Handle>;
  /**
   * Lets a paused sandbox go on where it was; its agent answers when this resolves. One whose pause or resume was interrupted, by an end of the edge,
   * goes on too. When it rejects, the sandbox stays saved, unless with `SandboxLost`, and `FailedPrecondition` says why it cannot go on here.
   */
  resume(handle: Handle, spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle>;
}

/** Where the edge puts a sandbox: what must be unique on the node. */
export interface Place {
  /** Index of the sandbox's own range of user ids; unique among live sandboxes. */
  readonly slot: number;
  /** What another sandbox was is copied for it, by `Copying.copy`: it begins with all of that, or with the files alone. */
  readonly copied?: "all" | "files" | undefined;
}

/** How a backend finds a sandbox again. The edge stores it and hands it back, unread. */
export interface Handle {
  readonly version: 1;
  readonly id: SandboxId;
  /** JSON that only the backend reads. */
  readonly opaque: Readonly<Record<string, unknown>>;
  /** Of a machine. */
  readonly accelerator?: Accelerator;
}

/** The classes of things a sandbox may leave behind. */
export const RESOURCE_CLASSES = [
  "processes",
  "cgroups",
  "mounts",
  "network-namespaces",
  "user-ids",
  "uppers",
  "run-directories",
  "blanks",
] as const;
export type ResourceClass = (typeof RESOURCE_CLASSES)[number];
/** The classes of which a sandbox in a settled state has one each. */
export type Footprint = Readonly<Record<"ready" | "paused" | "failed", ReadonlySet<ResourceClass>>>;
/** Ids of sandboxes by the class of resource that carries them. */
export type Inventory = Readonly<Record<ResourceClass, ReadonlySet<string>>>;
