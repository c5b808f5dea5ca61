import { type Static, Type } from "typebox";
import { RESOURCE_CLASSES } from "#core/backend.ts";
import { BACKEND_KINDS } from "#core/sandbox.ts";
import { ErrorBody } from "./errors.ts";
import { closed, oneOf } from "./values.ts";

const Amounts = closed({ cpus: Type.Number(), memoryMiB: Type.Number(), sandboxes: Type.Number() });

/** A node as the watcher last saw it, `ageMs` ago. A `lost` one has not answered for a while. */
export const NodeView = closed({
  edge: Type.String(),
  state: oneOf(["ready", "lost"]),
  ageMs: Type.Number(),
  reason: Type.Optional(Type.String({ description: "Why the last question got no answer." })),
  version: Type.String(),
  startedAtMs: Type.Number(),
  backends: Type.Array(oneOf(BACKEND_KINDS)),
  capacity: Amounts,
  promised: Amounts,
  sandboxes: Type.Integer(),
  creating: Type.Integer(),
});
export type NodeView = Static<typeof NodeView>;

/** Every node that was ever seen. */
export const NodeList = closed({ nodes: Type.Array(NodeView) });
export type NodeList = Static<typeof NodeList>;

/** One class of resource on a node: what should exist, what does, and ids that should not. */
export const ResourceCountView = closed({
  class: oneOf(RESOURCE_CLASSES),
  expected: Type.Integer(),
  found: Type.Integer(),
  surplus: Type.Array(Type.String()),
});
export type ResourceCountView = Static<typeof ResourceCountView>;

/** Every class of resource of one node. */
export const ResourceList = closed({ resources: Type.Array(ResourceCountView) });
export type ResourceList = Static<typeof ResourceList>;

/** How data of layers fares that is fetched as it is read, since the node's filler was started. */
const OnDemandView = closed({
  cachedBytes: Type.Number(),
  cacheLimitBytes: Type.Number(),
  failedReads: Type.Integer({ description: "Reads that ended with EIO." }),
  lastFailure: Type.Optional(closed({ message: Type.String(), atMs: Type.Number() })),
  trouble: Type.Optional(
    closed({ reason: Type.String({ description: "Why nothing can be fetched at present." }), sinceMs: Type.Number() }),
  ),
});

/** The store that nodes share; `problem` is there when it cannot be used, `onDemand` where data is fetched as it is read. */
export const StoreView = closed({
  name: Type.String(),
  problem: Type.Optional(ErrorBody.properties.error),
  onDemand: Type.Optional(OnDemandView),
});
export type StoreView = Static<typeof StoreView>;

/** No `store`: layers stay on the node that made them. */
export const StoreReply = closed({ store: Type.Optional(StoreView) });
export type StoreReply = Static<typeof StoreReply>;

const Count = Type.Integer({ minimum: 0 });

/** What a collection removed from the store. */
export const StoreCollectReply = closed({ artifacts: Count, layers: Count, blobs: Count, bytes: Count });
export type StoreCollectReply = Static<typeof StoreCollectReply>;
