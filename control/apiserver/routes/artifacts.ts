import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind, LayerDigest } from "#core/sandbox.ts";
import { parsePlace } from "#images/place.ts";
import { parseReference } from "#images/reference.ts";
import { sandboxesOf } from "../../sandbox-list.ts";
import { JSON_LINES } from "../event-forms.ts";
import type { Handlers, Services } from "../handler.ts";
import { makingEvents } from "../making.ts";
import { bodyOf, sendBytes } from "../stream.ts";
import { artifactView } from "../views.ts";

type Names = "importArtifact" | "importFrom" | "buildArtifact" | "listArtifacts" | "inspectArtifact" | "removeArtifact";

/** The calls about environment parts. */
export function artifactHandlers(services: Services): Pick<Handlers, Names> {
  const { catalogue, maker } = services;
  return {
    async importArtifact({ principal: { project }, query, request, scope }) {
      // A bad name shows before the upload, not after it.
      parseReference(query.name);
      const source = bodyOf(request, scope);
      const { kind, format = "tar", at } = query;
      checkPlace(kind, at);
      const made = await maker.importArchive({ kind, format, source, at, signal: scope.signal });
      return artifactView(await catalogue.put(project, query.name, made));
    },

    async importFrom({ body: { name, kind, source, at }, principal: { project }, response, scope }) {
      parseReference(name);
      checkPlace(kind, at);
      const { signal } = scope;
      const make = (progress: (line: string) => void) => maker.importFrom({ kind, source, at, signal, progress });
      await sendBytes(makingEvents(services, { project, name, make }), response, scope, JSON_LINES);
    },

    async buildArtifact({ body, principal: { project }, response, scope }) {
      const { name, kind = "base", suite, include = [] } = body;
      parseReference(name);
      const { signal } = scope;
      const make = (progress: (line: string) => void) => maker.buildDebian({ kind, suite, include, signal, progress });
      await sendBytes(makingEvents(services, { project, name, make }), response, scope, JSON_LINES);
    },

    async listArtifacts({ principal: { project } }) {
      return { artifacts: (await catalogue.list(project)).map(artifactView) };
    },

    async inspectArtifact({ principal: { project }, params }) {
      return artifactView(await catalogue.resolve(project, params.name ?? ""));
    },

    async removeArtifact({ principal: { project }, params, scope: { signal } }) {
      await catalogue.remove(project, params.name ?? "");
      await collect(services, signal);
    },
  };
}

/** A bad place shows before the upload. */
function checkPlace(kind: ArtifactKind, at: string | undefined): void {
  if (at === undefined || parsePlace(at).length === 0 || kind !== "base") return;
  throw new SandboxError("InvalidArgument", `a base begins at /, not at ${JSON.stringify(at)}`, {
    hint: "import it as a workspace or toolkit, or leave the place out",
  });
}

/** Takes layers that nobody names any more out of the store. A node that does not answer may name any: then all stay. */
async function collect({ catalogue, creator, log, maker, watcher }: Services, signal: AbortSignal): Promise<void> {
  try {
    // Creates are looked at before sandboxes: one that ends in between is seen as a sandbox.
    const keep = new Set<LayerDigest>(creator.layersUnderWay());
    for (const [, node] of watcher.nodes()) {
      for await (const { spec } of sandboxesOf(node, {}, signal)) for (const layer of spec.layers) keep.add(layer);
    }
    for (const layer of await catalogue.layers()) keep.add(layer);
    await maker.collect(keep);
  } catch (error) {
    log.warn({ err: error }, "unused layers were not collected; the next removal tries again");
  }
}
