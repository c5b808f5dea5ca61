import { type TObject, type TSchema, Type } from "typebox";

/** One call of the API: everything but what it does. The server, its OpenAPI and the docs are made from this table. */
export interface Operation {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** With `{name}` for each part that varies. */
  readonly path: string;
  readonly summary: string;
  readonly query: TObject;
  /** A schema: JSON of that form. `bytes`: any bytes, streamed. `none`: nothing is read. */
  readonly body: TSchema | "bytes" | "none";
  /** 101: the connection becomes a WebSocket. */
  readonly status: 101 | 200 | 201 | 204;
  /** The same as values of that form, for `Accept: application/x-ndjson` and `text/event-stream`. */
  readonly events: TSchema | undefined;
  /** A schema: JSON of that form. `bytes`: streamed. `lines`: JSON values of `line`, one a line. */
  readonly reply: TSchema | "bytes" | { readonly line: TSchema } | "none";
  /** True: repeats under one Idempotency-Key header act once. */
  readonly idempotencyKey: boolean;
  /** True: the time limit counts from the last progress, not from the start. */
  readonly streams: boolean;
  /** True: needs no token. */
  readonly open: boolean;
}

const NOTHING = Type.Object({}, { additionalProperties: false });
/** What most calls are: no query, no body, no reply. */
export const BASE = {
  query: NOTHING,
  body: "none",
  status: 200,
  reply: "none",
  events: undefined,
  idempotencyKey: false,
  streams: false,
  open: false,
} as const satisfies Partial<Operation>;
