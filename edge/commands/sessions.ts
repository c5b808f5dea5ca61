import { constants } from "node:os";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { CommandSpec, SessionInfo, SessionSpec } from "#core/sandbox.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import type { FoundCommand } from "#edge/commands/commands.ts";
import { explain } from "#edge/explain.ts";
import { validateCommand } from "#edge/validate.ts";

/**
 * Sessions of one sandbox. To the edge a session is a command too: its shell, with an output of its own for what it says between
 * lines. So it survives restarts, and its end is observed as any other.
 */

/** See `Node.openSession`. */
export async function openSession(call: CommandCall, spec: SessionSpec): Promise<SessionInfo> {
  const { driver, signal } = call;
  const command = shellCommand(spec);
  validateCommand(command);
  using _busy = driver.busy();
  const link = await driver.agent("use", signal);
  const before = spec.name === undefined ? undefined : driver.commands.session(spec.name);
  const repeated =
    spec.idempotencyKey !== undefined && before?.live?.identity.spec.idempotencyKey === spec.idempotencyKey;
  if (before !== undefined && before.status === undefined && !repeated) {
    throw new SandboxError("AlreadyExists", `there is a session ${JSON.stringify(spec.name)} already`, {
      hint: "use it, remove it, or open one under another name",
    });
  }
  return sessionInfo(await driver.commands.start(command, link).catch((error: unknown) => explain(error, call)));
}

/** See `Node.listSessions`. */
export function listSessions({ driver }: CommandCall): readonly SessionInfo[] {
  return driver.commands.sessions().map(sessionInfo);
}

/** See `Node.inspectSession`. */
export function inspectSession({ driver }: CommandCall, name: string): SessionInfo {
  const found = driver.commands.session(name);
  if (found !== undefined) return sessionInfo(found);
  throw new SandboxError("NotFound", `no session ${JSON.stringify(name.slice(0, 80))} in sandbox ${driver.spec.id}`);
}

/** See `Node.removeSession`. */
export async function removeSession({ driver, signal }: CommandCall, name: string): Promise<void> {
  using _busy = driver.busy();
  for (let found = driver.commands.session(name); found !== undefined; found = driver.commands.session(name)) {
    const { live, id } = found;
    if (live !== undefined && live.status === undefined) {
      live.killedByCaller = true;
      const link = await driver.agent("use", signal);
      link.signal(live.identity.number, constants.signals.SIGKILL, "group");
      await abortable(live.finished, signal);
    }
    // Somebody else may have removed it meanwhile.
    if (driver.commands.session(name)?.id === id) driver.commands.discard(id);
  }
}

function shellCommand({ name = "", env, cwd, user, idempotencyKey }: SessionSpec): CommandSpec {
  return {
    argv: ["bash"],
    env,
    cwd,
    user,
    stdin: "none",
    terminal: undefined,
    timeLimitMs: undefined,
    waitFor: "leader",
    outputCapBytes: undefined,
    idempotencyKey,
    session: { name, role: "shell" },
  };
}

function sessionInfo({ id, session, pid, startedAtMs, status }: FoundCommand): SessionInfo {
  return { id, name: session === undefined || session === "" ? id : session, pid, startedAtMs, status };
}
