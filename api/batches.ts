import { type Static, Type } from "typebox";
import { CommandReply, MAX_INLINE_BYTES, StartCommand } from "./commands.ts";
import { ErrorBody } from "./errors.ts";
import { CreateSandbox, SandboxView } from "./sandboxes.ts";
import { closed, described, LabelFilter, Labels } from "./values.ts";

/** What one call may concern. */
const MAX_ITEMS = 10_000;
/** More at a time would only wait in the nodes. */
const MAX_CONCURRENCY = 256;

const Concurrency = Type.Integer({ minimum: 1, maximum: MAX_CONCURRENCY, description: "How many at a time." });
const error = ErrorBody.properties.error;

/** Sandboxes of one kind. With an Idempotency-Key each has a key of its own: a repeat finds those that are there. */
export const CreateManyRequest = closed({
  count: Type.Integer({ minimum: 1, maximum: MAX_ITEMS }),
  concurrency: Type.Optional(Concurrency),
  sandbox: CreateSandbox,
});
export type CreateManyRequest = Static<typeof CreateManyRequest>;

/** What came of one of them, by its index from 0 on; in the order in which they are done. */
export const CreateManyEvent = Type.Union([
  closed({ index: Type.Integer(), sandbox: SandboxView }),
  closed({ index: Type.Integer(), error }),
]);
export type CreateManyEvent = Static<typeof CreateManyEvent>;

/** One command for many sandboxes: those named, or those that carry every given label. */
export const RunManyRequest = closed({
  sandboxes: Type.Optional(Type.Array(Type.String({ maxLength: 128 }), { minItems: 1, maxItems: MAX_ITEMS })),
  labels: Type.Optional({ ...Labels, minProperties: 1 }),
  concurrency: Type.Optional(Concurrency),
  inlineBytes: Type.Optional(
    described(Type.Integer({ minimum: 0, maximum: MAX_INLINE_BYTES }), "Output of each that comes with its line."),
  ),
  command: StartCommand,
});
export type RunManyRequest = Static<typeof RunManyRequest>;

/** What came of the command in one sandbox: how it ended, with the beginning of its output, or why it did not start. */
export const RunManyEvent = Type.Union([
  closed({ sandbox: Type.String(), command: CommandReply }),
  closed({ sandbox: Type.String(), error }),
]);
export type RunManyEvent = Static<typeof RunManyEvent>;

/** Which sandboxes to remove: those that carry every given label, of which there must be one. */
export const RemoveManyQuery = closed({
  label: { ...LabelFilter, minItems: 1 },
  concurrency: Type.Optional(Concurrency),
});

/** What came of one removal; without an error nothing of the sandbox is left. */
export const RemoveManyEvent = closed({ sandbox: Type.String(), error: Type.Optional(error) });
export type RemoveManyEvent = Static<typeof RemoveManyEvent>;
