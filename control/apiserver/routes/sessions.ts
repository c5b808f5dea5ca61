import type { RunLine } from "#api/index.ts";
import type { CommandSpec } from "#core/sandbox.ts";
import { lineOf } from "../bytes.ts";
import type { Handlers, Services } from "../handler.ts";
import { commandReply, sessionView } from "../views.ts";
import { runWait } from "./commands.ts";

type Names = "openSession" | "listSessions" | "inspectSession" | "removeSession" | "runLine";

/** The calls about persistent shells. A line of one is a command, and everything else is asked of it as of any other. */
export function sessionHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async openSession({ principal, params, body, idempotencyKey, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { name, env = {}, cwd, user } = body;
      return sessionView(await node.openSession(id, { name, env, cwd, user, idempotencyKey }, signal));
    },

    async listSessions({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return { sessions: (await node.listSessions(id, signal)).map(sessionView) };
    },

    async inspectSession({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return sessionView(await node.inspectSession(id, params.session ?? "", signal));
    },

    async removeSession({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.removeSession(id, params.session ?? "", signal);
    },

    async runLine({ principal, params, query, body, idempotencyKey, scope }) {
      const spec = specOf(params.session ?? "", body, idempotencyKey);
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      return commandReply(await node.startCommand(id, spec, runWait(query, scope), scope.signal));
    },
  };
}

function specOf(session: string, body: RunLine, idempotencyKey: string | undefined): CommandSpec {
  return {
    argv: [lineOf(body.line, "line")],
    env: {},
    cwd: undefined,
    user: undefined,
    stdin: body.stdin ?? "none",
    terminal: undefined,
    timeLimitMs: body.timeLimitMs,
    waitFor: body.waitFor ?? "leader",
    outputCapBytes: body.outputCapBytes,
    idempotencyKey,
    session: { name: session, role: "line" },
  };
}
