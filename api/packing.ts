import { type Static, Type } from "typebox";
import { FORK_NODES, SCRUB_RULES } from "#core/packing.ts";
import { ArtifactName, ArtifactView, ConfigRequest } from "./artifacts.ts";
import { ErrorBody } from "./errors.ts";
import { SandboxView } from "./sandboxes.ts";
import { closed, described, Labels, oneOf } from "./values.ts";

/** What to make of a sandbox's changes. */
export const PackRequest = closed({
  name: described(ArtifactName, "Of the snapshot; a name that is taken moves to it."),
  exclude: Type.Optional(
    described(
      Type.Array(Type.String({ minLength: 1, maxLength: 1024 }), { maxItems: 256 }),
      "Glob patterns of paths to leave out.",
    ),
  ),
  keep: Type.Optional(
    described(Type.Array(oneOf(SCRUB_RULES), { maxItems: SCRUB_RULES.length }), "What would be scrubbed, and is kept."),
  ),
  config: Type.Optional(
    described(ConfigRequest, "How what is made of the snapshot runs, over what its artifacts say."),
  ),
  labels: Type.Optional(described(Labels, "Of the snapshot. It has none of its sandbox's.")),
  consistent: Type.Optional(
    described(Type.Boolean(), "false: its processes are not held still for the moment. Default true."),
  ),
});
export type PackRequest = Static<typeof PackRequest>;

const Count = Type.Integer({ minimum: 0 });

/** A snapshot, and how it came about. */
export const PackView = closed({
  artifact: ArtifactView,
  layer: Type.String({
    description: "The layer of the changes, the last of the artifact's; in a long chain it has earlier ones, too.",
  }),
  entries: described(Count, "Files, directories, links and deletions in it."),
  bytes: described(Count, "Of the files, holes included."),
  frozenMs: described(Type.Number(), "How long its processes were held still."),
  skipped: closed({
    excluded: described(Count, "Matched a pattern; what lies below a directory is not counted."),
    scrubbed: described(Count, "Credentials and histories."),
    special: described(Count, "Sockets and devices."),
  }),
});
export type PackView = Static<typeof PackView>;

/** How many sandboxes to make of one. With an Idempotency-Key a repeat finds those that are there. */
export const ForkRequest = closed({
  count: Type.Integer({ minimum: 1, maximum: 256 }),
  labels: Type.Optional(described(Labels, "Beside those of the sandbox.")),
  paused: Type.Optional(
    described(
      Type.Boolean(),
      "Saves each as it is at this instant, memory and all, and lets none run before it is asked for something: a snapshot, on the sandbox's node.",
    ),
  ),
  memory: Type.Optional(
    described(Type.Boolean(), "False: they begin with its files alone, also where what runs could come along."),
  ),
  nodes: Type.Optional(
    described(
      oneOf(FORK_NODES),
      "Where: any, the sandbox's node while it has room and then others; same, its node alone; other, none on its node. Default any.",
    ),
  ),
});
export type ForkRequest = Static<typeof ForkRequest>;

/** What came of each, by its index from 0 on. */
export const ForkView = closed({
  frozenMs: described(Type.Number(), "How long the processes of the sandbox were held still, once for all."),
  forks: Type.Array(
    Type.Union([
      closed({ index: Type.Integer(), sandbox: SandboxView }),
      closed({ index: Type.Integer(), error: ErrorBody.properties.error }),
    ]),
  ),
});
export type ForkView = Static<typeof ForkView>;
