import { SandboxError } from "#core/errors.ts";
import type { Handlers, Services } from "../handler.ts";

type Names = "listPorts" | "waitForPort" | "createPortTicket";

/** The calls about ports; what leads to the servers there is in `ports/`. */
export function portHandlers({ access, passes, portDomain }: Services): Pick<Handlers, Names> {
  return {
    async listPorts({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return { listeners: [...(await node.listListeners(id, signal))] };
    },

    async waitForPort({ principal, params, query: { port, waitMs }, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const listening = await node.waitForPort(id, port, scope.withinDeadline(waitMs ?? 0), scope.signal);
      return { port, listening };
    },

    async createPortTicket({ principal, params, body: { port }, scope: { signal } }) {
      if (portDomain === undefined) {
        throw new SandboxError("FailedPrecondition", "ports have no hosts on this server", {
          hint: "start the node with --port-domain (DSEC_PORT_DOMAIN), or use dsec forward",
        });
      }
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      // Also for an admin, who is routed without a question: a ticket to nowhere would tell so too late.
      await node.inspect(id, signal);
      const { secret, expiresAtMs } = await passes.issueTicket(principal, { sandbox: id, port });
      return { host: `${port}-${id}.${portDomain}`, ticket: secret, expiresAtMs };
    },
  };
}
