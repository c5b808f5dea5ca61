import { parseReference } from "#images/reference.ts";
import type { Handlers, Services } from "../handler.ts";
import { artifactView } from "../views.ts";

type Names = "packSandbox";

/** The calls that make something new of what a sandbox has written. */
export function packingHandlers({ access, catalogue, replies }: Services): Pick<Handlers, Names> {
  return {
    async packSandbox({ principal, params, body, idempotencyKey, scope: { signal } }) {
      parseReference(body.name);
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { name, exclude = [], keep = [], consistent = true } = body;
      const { project } = principal;
      return replies.once({ project, key: idempotencyKey, id, request: { packSandbox: body } }, async () => {
        const packed = await node.packDiff(id, { exclude, keep, consistent }, signal);
        const { layers, config, sizeBytes, layer, entries, dataBytes, frozenMs, skipped } = packed;
        const snapshot = { kind: "snapshot", layers, config, sizeBytes, provenance: `packed from ${id}` } as const;
        const artifact = artifactView(await catalogue.put(project, name, snapshot));
        return { artifact, layer, entries, bytes: dataBytes, frozenMs, skipped: { ...skipped } };
      });
    },
  };
}
