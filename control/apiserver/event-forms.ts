import type { IncomingHttpHeaders } from "node:http";
import { SandboxError } from "#core/errors.ts";

/** How values follow each other in a reply. */
export interface EventForm {
  readonly mediaType: string;
  /** One value; `at` is where a reader that has it goes on, where there is such a place. */
  encode(value: object, at: number | undefined): string;
  /** What readers overlook: says that the reply is alive. */
  readonly beat: string;
}

/** The media type of server-sent events. */
const EVENT_STREAM = "text/event-stream";

/** The media type of JSON values, one a line. */
export const JSON_LINES = "application/x-ndjson";

/** One JSON value a line; an empty line now and then. */
export const LINES: EventForm = {
  mediaType: JSON_LINES,
  encode: (value) => `${JSON.stringify(value)}\n`,
  beat: "\n",
};

/** Server-sent events, named after what the value has; `id` is where to go on. */
const EVENTS: EventForm = {
  mediaType: EVENT_STREAM,
  encode: (value, at) => {
    const id = at === undefined ? "" : `id: ${at}\n`;
    return `event: ${nameOf(value)}\n${id}data: ${JSON.stringify(value)}\n\n`;
  },
  beat: ":\n\n",
};

/** The form that a request asks for; undefined when it takes the bytes as they are. */
export function eventFormOf({ accept = "" }: IncomingHttpHeaders): EventForm | undefined {
  const types = accept.split(",").map((range) => range.split(";")[0]?.trim().toLowerCase());
  return [EVENTS, LINES].find(({ mediaType }) => types.includes(mediaType));
}

/** Where a reader of events that lost its connection goes on; undefined for a first request. */
export function resumptionOf({ "last-event-id": id }: IncomingHttpHeaders): number | undefined {
  if (id === undefined) return undefined;
  if (typeof id === "string" && /^\d{1,15}$/.test(id)) return Number(id);
  throw new SandboxError("InvalidArgument", "the header Last-Event-ID must be an offset", {
    details: { field: "Last-Event-ID" },
  });
}

function nameOf(value: object): string {
  return ["data", "gap", "end", "error"].find((name) => name in value) ?? "message";
}
