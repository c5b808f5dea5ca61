import { parseEdgeId } from "#core/ids.ts";
import { authorize } from "../../iam/iam.ts";
import { failureOf } from "../failure.ts";
import type { Handlers, Services } from "../handler.ts";
import { openApi } from "../openapi.ts";
import { nodeView, resourceView } from "../views.ts";

type Names = "health" | "openApi" | "whoAmI" | "listNodes" | "nodeResources" | "storeStatus";

/** Whoever asks for the status waits no longer for a store than this. */
const PROBE_MS = 5_000;

/** The calls about the system itself. */
export function systemHandlers({ store, version, watcher }: Services): Pick<Handlers, Names> {
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

    async storeStatus({ principal, scope: { signal } }) {
      authorize(principal, "operate", principal.project);
      if (store === undefined) return {};
      const patience = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
      const problem = await store.probe(patience).then(() => undefined, failureOf);
      const { name, onDemand } = store;
      return {
        store: {
          name,
          ...(problem === undefined ? {} : { problem: problem.body.error }),
          ...(onDemand === undefined ? {} : { onDemand }),
        },
      };
    },
  };
}
