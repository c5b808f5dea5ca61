import { parseEdgeId } from "#core/ids.ts";
import { authorize } from "../../iam/iam.ts";
import type { Handlers, Services } from "../handler.ts";
import { openApi } from "../openapi.ts";
import { nodeView, resourceView } from "../views.ts";

type Names = "health" | "openApi" | "whoAmI" | "listNodes" | "nodeResources";

/** The calls about the system itself. */
export function systemHandlers({ version, watcher }: Services): Pick<Handlers, Names> {
  const document = openApi(version);
  return {
    health: async () => ({ status: "ok", version }),
    openApi: async () => document,
    whoAmI: async ({ principal: { name, project, role } }) => ({ principal: name, project, role }),
    listNodes: async () => ({ nodes: watcher.sightings().map(nodeView) }),

    async nodeResources({ principal, params, scope: { signal } }) {
      authorize(principal, "operate", principal.project);
      const node = watcher.node(parseEdgeId(params.edge ?? ""));
      return { resources: (await node.resources(signal)).map(resourceView) };
    },
  };
}
