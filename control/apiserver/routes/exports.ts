import { JSON_LINES } from "../event-forms.ts";
import type { Handlers, Services } from "../handler.ts";
import { progressLines } from "../progress-lines.ts";
import { reachOf } from "../reach.ts";
import { sendBytes } from "../stream.ts";

/** The calls that take artifacts out. */
export function exportHandlers(services: Services): Pick<Handlers, "exportArtifact" | "exportTo"> {
  const { catalogue, maker } = services;
  return {
    async exportArtifact({ principal: { project }, params, query: { compression = "gzip" }, response, scope }) {
      const artifact = await catalogue.resolve(project, params.name ?? "");
      await using archive = await maker.openExport({ artifact, compression, signal: scope.signal });
      await sendBytes(archive.bytes, response, scope);
    },

    async exportTo({ body, principal, params, response, scope }) {
      const artifact = await catalogue.resolve(principal.project, params.name ?? "");
      const reach = reachOf(principal);
      const { compression = "gzip", type: _, ...target } = body;
      const { signal } = scope;
      const lines = progressLines(services, async (progress) => {
        await maker.exportToRegistry({ artifact, compression, target, reach, signal, progress });
        return { exported: `docker://${target.image}` };
      });
      await sendBytes(lines, response, scope, JSON_LINES);
    },
  };
}
