import type { Handlers, Services } from "../handler.ts";

type Names = "listPorts" | "waitForPort";

/** The calls about ports; what leads to the servers there is in `ports/`. */
export function portHandlers({ access }: Services): Pick<Handlers, Names> {
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
  };
}
