import type { TaskAction, TaskSpec } from "#core/guest.ts";
import type { CommandSpec, SandboxSpec } from "#core/sandbox.ts";

/** What nearly every program and every terminal on the other end understands. */
const DEFAULT_TERM = "xterm";

/**
 * What the agent is asked to run for a command: the sandbox's own settings under the command's. `session` is the task of the
 * shell that a line is for.
 */
export function commandTask(sandbox: SandboxSpec, command: CommandSpec, session?: number): TaskSpec {
  return {
    action: actionOf(command, session),
    user: command.user ?? sandbox.user,
    cwd: command.cwd ?? sandbox.workdir,
    env: {
      ...(command.terminal === undefined ? {} : { TERM: DEFAULT_TERM }),
      ...sandbox.config.env,
      ...sandbox.env,
      ...command.env,
    },
    stdin: command.stdin,
    timeLimitMs: command.timeLimitMs,
  };
}

function actionOf({ argv, terminal, session: part }: CommandSpec, session: number | undefined): TaskAction {
  if (part?.role === "shell") return { type: "session" };
  const texts = argv.map((argument) => (typeof argument === "string" ? Buffer.from(argument) : argument));
  const [text] = texts;
  if (session !== undefined && text !== undefined) return { type: "line", session, text };
  return { type: "exec", argv: texts, terminal };
}

/** What the agent is asked to do with a file, in the name of `user`. */
export function fileTask(action: TaskAction, user: string): TaskSpec {
  return {
    action,
    user,
    cwd: "/",
    env: {},
    stdin: action.type === "write" || action.type === "write-tree" ? "pipe" : "none",
    timeLimitMs: undefined,
  };
}
