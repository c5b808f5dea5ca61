import { type Static, Type } from "typebox";
import { ERROR_KINDS, type ErrorKind, type Retry } from "#core/errors.ts";
import { closed, oneOf } from "./values.ts";

export type { ErrorDetails, ErrorKind, Retry } from "#core/errors.ts";

const KINDS = Object.keys(ERROR_KINDS) as readonly ErrorKind[];

/** The body of every reply that is not a success. Act on `kind`; show `message` and `hint` to people. */
export const ErrorBody = closed({
  error: closed({
    kind: oneOf(KINDS, "What went wrong; stable."),
    message: Type.String(),
    hint: Type.Optional(Type.String({ description: "What to do next." })),
    retry: oneOf<readonly Retry[]>(["never", "elsewhere", "backoff"], "When the same call may succeed."),
    details: Type.Optional(
      Type.Record(Type.String(), Type.Union([Type.String(), Type.Number(), Type.Boolean(), Type.Array(Type.String())])),
    ),
  }),
});
export type ErrorBody = Static<typeof ErrorBody>;
