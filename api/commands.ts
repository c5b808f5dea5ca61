import { type Static, Type } from "typebox";
import { ErrorBody } from "./errors.ts";
import { closed, DurationMs, described, Environment, oneOf, PathText, TextOrBytes, UserName } from "./values.ts";

export type { OutputStream } from "#core/sandbox.ts";

/** Most bytes of a stream that an answer carries inline. */
export const MAX_INLINE_BYTES = 1024 * 1024;
/** The longest a call waits for the end of a command; ask again after it. */
export const MAX_WAIT_MS = 300_000;

/** How long an answer may be held back, in milliseconds. */
export const WaitMs = Type.Integer({ minimum: 0, maximum: MAX_WAIT_MS, description: "Wait so long for the end." });
const Offset = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

const Characters = Type.Integer({ minimum: 1, maximum: 65_535 });
/** The size of a terminal in characters. */
export const TerminalSize = closed({ rows: Characters, cols: Characters });
export type TerminalSize = Static<typeof TerminalSize>;

const WaitFor = oneOf(["leader", "pipes"]);

/** What to run: either `argv` or a `shell` line for the sandbox's `/bin/sh -c`, exactly one of them. */
export const StartCommand = closed({
  argv: Type.Optional(Type.Array(TextOrBytes, { minItems: 1, maxItems: 100_000 })),
  shell: Type.Optional(TextOrBytes),
  env: Type.Optional(Environment),
  cwd: Type.Optional(PathText),
  user: Type.Optional(UserName),
  stdin: Type.Optional(described(oneOf(["none", "pipe"]), "`none` unless said otherwise; `pipe` with a terminal.")),
  terminal: Type.Optional(described(TerminalSize, "Run on a terminal of this size; all output comes as stdout.")),
  timeLimitMs: Type.Optional(described(DurationMs, "Its process group is killed after so long; its output stays.")),
  waitFor: Type.Optional(
    described(WaitFor, "`pipes`: waits end when nobody holds its stdout and stderr either, background children say."),
  ),
  outputCapBytes: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 2 ** 40, description: "Bytes of each stream that stay readable." }),
  ),
});
export type StartCommand = Static<typeof StartCommand>;

/** What may be asked of a start besides the command. */
export const StartQuery = closed({
  waitMs: Type.Optional(WaitMs),
  inlineBytes: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_INLINE_BYTES })),
});
export type StartQuery = Static<typeof StartQuery>;

/** What may be asked of a command. */
export const CommandQuery = closed({ waitMs: Type.Optional(WaitMs) });

const StreamView = closed({
  seen: Type.Integer({ description: "Bytes written so far." }),
  kept: Type.Integer({ description: "Bytes of those that can be read back." }),
  truncated: Type.Boolean({ description: "Bytes in the middle were dropped to hold the cap." }),
  ended: Type.Boolean({ description: "Nobody in the sandbox holds the stream any more." }),
});

/** How a command or a session ended. */
export const ExitView = closed({
  cause: oneOf(["exited", "signaled", "timeout", "out-of-memory", "session-ended", "sandbox-stopped", "agent-lost"]),
  code: Type.Optional(Type.Integer({ description: "Present exactly when it exited by itself." })),
  signal: Type.Optional(Type.String({ description: "Present exactly when a signal ended it." })),
  wallMs: Type.Number(),
  cpuMs: Type.Number(),
  maxRssKiB: Type.Number(),
  sessionEnded: Type.Optional(Type.Literal(true, { description: "Of a line: its session ended together with it." })),
});

/** A command; `status` is there exactly when its end was observed. */
export const CommandView = closed({
  id: Type.String(),
  argv: Type.Array(TextOrBytes),
  pid: Type.Integer({ description: "As seen inside the sandbox." }),
  terminal: Type.Optional(described(TerminalSize, "The size it was started with; absent: it has no terminal.")),
  waitFor: WaitFor,
  startedAtMs: Type.Number(),
  session: Type.Optional(Type.String({ description: "The session that it is a line of." })),
  status: Type.Optional(ExitView),
  stdout: StreamView,
  stderr: StreamView,
});
export type CommandView = Static<typeof CommandView>;

/** The answer to a start: the command, and the first `inlineBytes` of its output when it ended within `waitMs`. */
export const CommandReply = closed({
  ...CommandView.properties,
  output: Type.Optional(
    closed({
      stdout: Type.String({ contentEncoding: "base64" }),
      stderr: Type.String({ contentEncoding: "base64" }),
    }),
  ),
});
export type CommandReply = Static<typeof CommandReply>;

/** Which commands to list. */
export const CommandListQuery = closed({
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 1000,
      description: "200 unless given; pages of long command lines have fewer.",
    }),
  ),
  cursor: Type.Optional(Type.String({ maxLength: 64, description: "From the page before." })),
  newestFirst: Type.Optional(Type.Boolean()),
});

/** A page of commands, oldest first unless asked otherwise; `cursor` is there when more follow. */
export const CommandList = closed({ commands: Type.Array(CommandView), cursor: Type.Optional(Type.String()) });
export type CommandList = Static<typeof CommandList>;

/** A signal for the command's process group: `SIGTERM`, `TERM`, `SIGRTMIN+1`, or its number. */
export const SignalCommand = closed({
  signal: Type.Union([Type.String({ pattern: "^[A-Z0-9+-]{1,16}$" }), Type.Integer({ minimum: 1, maximum: 64 })]),
});
export type SignalCommand = Static<typeof SignalCommand>;

/** Where the body's bytes belong in the input, and whether the input ends after them. */
export const StdinQuery = closed({ offset: Type.Optional(Offset), close: Type.Optional(Type.Boolean()) });

/** One past the last byte of input that was taken. */
export const StdinReply = closed({ offset: Type.Integer() });
export type StdinReply = Static<typeof StdinReply>;

/** Which part of an output to read. */
export const OutputQuery = closed({
  offset: Type.Optional(Offset),
  follow: Type.Optional(Type.Boolean({ description: "Go on until the stream ends." })),
  hold: Type.Optional(Type.Boolean({ description: "Hold the command back rather than drop bytes not read yet." })),
});

/** A piece of an output as JSON: bytes, dropped bytes ahead, why there is no more, or what failed. Offsets count from the start. */
export const OutputEvent = Type.Union([
  closed({ offset: Type.Integer(), data: TextOrBytes }),
  closed({ gap: closed({ from: Type.Integer(), to: Type.Integer() }) }),
  closed({ end: oneOf(["ended", "caught-up"]), offset: Type.Integer() }),
  ErrorBody,
]);
export type OutputEvent = Static<typeof OutputEvent>;

/** Why a reply with output ended, in its `X-Dsec-End` trailer: the stream's end, what there was, or dropped bytes ahead. */
export type OutputEnd = "ended" | "caught-up" | "gap";
