import { type Static, Type } from "typebox";
import { CommandView, SignalCommand, TerminalSize } from "./commands.ts";
import { ErrorBody } from "./errors.ts";
import { closed, oneOf } from "./values.ts";

/**
 * The messages of an attachment: a WebSocket with everything a command writes, and perhaps its input.
 *
 * Binary messages carry bytes. From the server: u8 stream (0 stdout, 1 stderr), u64 offset, output. From the client: u64
 * offset, input. Numbers are little-endian. Text messages are the JSON objects below, each with its `type`.
 */

/** Input that a client may have under way, sent and not yet acknowledged. */
export const INPUT_WINDOW_BYTES = 256 * 1024;

const Offset = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Stream = oneOf(["stdout", "stderr"]);

/** How to attach. */
export const AttachQuery = closed({
  stdout: Type.Optional(Offset),
  stderr: Type.Optional(Offset),
  input: Type.Optional(oneOf(["take", "none"])),
  hold: Type.Optional(Type.Boolean({ description: "Hold the command back rather than drop bytes not sent yet." })),
  window: Type.Optional(
    Type.Integer({
      minimum: 65_536,
      maximum: 64 * 1024 * 1024,
      description:
        "Bytes of each stream that the server sends before it has an `ack`; absent: as the connection takes them.",
    }),
  ),
});

/** What a client says. */
export const AttachRequest = Type.Union([
  closed({ type: Type.Literal("ack"), stream: Stream, offset: Offset }),
  closed({ type: Type.Literal("resize"), ...TerminalSize.properties }),
  closed({ type: Type.Literal("signal"), ...SignalCommand.properties }),
  closed({ type: Type.Literal("close-input") }),
]);
export type AttachRequest = Static<typeof AttachRequest>;

/** What a server says. */
export const AttachEvent = Type.Union([
  /** The input is this client's, from `offset` on. */
  closed({ type: Type.Literal("input-taken"), offset: Offset }),
  /** Another client has taken the input. */
  closed({ type: Type.Literal("input-lost") }),
  /** Input before `offset` was taken. */
  closed({ type: Type.Literal("input-ack"), offset: Offset }),
  /** Bytes that were dropped to hold the output cap. */
  closed({ type: Type.Literal("gap"), stream: Stream, from: Offset, to: Offset }),
  /** Nobody in the sandbox holds the stream any more. */
  closed({ type: Type.Literal("end"), stream: Stream, offset: Offset }),
  /** The command has ended. Output that it wrote before may still follow: up to the `seen` of each stream. */
  closed({ type: Type.Literal("exit"), command: CommandView }),
  /** One request was refused; the attachment goes on. */
  closed({ type: Type.Literal("refused"), request: Type.String(), ...ErrorBody.properties }),
  /** The attachment ends with this. */
  closed({ type: Type.Literal("error"), ...ErrorBody.properties }),
  /** Sent when nothing else was for a while: the server is there. */
  closed({ type: Type.Literal("alive") }),
]);
export type AttachEvent = Static<typeof AttachEvent>;
