import { type Static, Type } from "typebox";
import { ExitView, StartCommand } from "./commands.ts";
import { closed, described, TextOrBytes } from "./values.ts";

const SessionName = Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" });

/** A persistent shell to open. */
export const OpenSession = closed({
  name: Type.Optional(described(SessionName, "Unique among the live sessions of the sandbox; made up when absent.")),
  env: StartCommand.properties.env,
  cwd: StartCommand.properties.cwd,
  user: StartCommand.properties.user,
});
export type OpenSession = Static<typeof OpenSession>;

/** A line for a session: what it runs is bytes, at most a megabyte, without NUL. */
export const RunLine = closed({
  line: TextOrBytes,
  stdin: StartCommand.properties.stdin,
  timeLimitMs: StartCommand.properties.timeLimitMs,
  waitFor: StartCommand.properties.waitFor,
  outputCapBytes: StartCommand.properties.outputCapBytes,
});
export type RunLine = Static<typeof RunLine>;

/** A session; `status` is there exactly when its end was observed. */
export const SessionView = closed({
  id: Type.String({
    description: "Of the command that its shell is: what it says between lines is the output of that.",
  }),
  name: Type.String(),
  pid: Type.Integer({ description: "Of its shell, as seen inside the sandbox." }),
  startedAtMs: Type.Number(),
  status: Type.Optional(ExitView),
});
export type SessionView = Static<typeof SessionView>;

/** The sessions of a sandbox, oldest first. */
export const SessionList = closed({ sessions: Type.Array(SessionView) });
