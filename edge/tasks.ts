import type { TaskAction, TaskSpec } from "#core/guest.ts";
import type { CommandSpec, SandboxSpec } from "#core/sandbox.ts";

/** What nearly every program and every terminal on the other end understands. */
const DEFAULT_TERM = "xterm";

/** What the agent is asked to run for a command: the sandbox's own settings under the command's. */
export function commandTask(sandbox: SandboxSpec, command: CommandSpec): TaskSpec {
  return {
    action: {
      type: "exec",
      argv: command.argv.map((argument) => (typeof argument === "string" ? Buffer.from(argument) : argument)),
      terminal: command.terminal,
    },
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
