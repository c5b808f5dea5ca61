import type { BuildEvent } from "#api/index.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { parseReference } from "#images/reference.ts";
import { sandboxesOf } from "../../sandbox-list.ts";
import { JSON_LINES } from "../event-forms.ts";
import { failureOf } from "../failure.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import { bodyOf, sendBytes } from "../stream.ts";
import { artifactView } from "../views.ts";

type Names = "importArtifact" | "buildArtifact" | "listArtifacts" | "inspectArtifact" | "removeArtifact";

/** The calls about environment parts. */
export function artifactHandlers(services: Services): Pick<Handlers, Names> {
  const { catalogue, maker } = services;
  return {
    async importArtifact({ principal: { project }, query, request, scope }) {
      // A bad name shows before the upload, not after it.
      parseReference(query.name);
      const source = bodyOf(request, scope);
      const { kind, format = "tar" } = query;
      const made = await maker.importArchive({ kind, format, source, signal: scope.signal });
      return artifactView(await catalogue.put(project, query.name, made));
    },

    async buildArtifact(call) {
      parseReference(call.body.name);
      await sendBytes(build(services, call), call.response, call.scope, JSON_LINES);
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

/** Progress as it comes, then the artifact or why there is none. */
async function* build(services: Services, call: Call<"buildArtifact">): AsyncGenerator<Uint8Array> {
  const { name, kind = "base", suite, include = [] } = call.body;
  const { signal } = call.scope;
  const events: BuildEvent[] = [];
  let wake = Promise.withResolvers<void>();
  const tell = (event: BuildEvent) => {
    events.push(event);
    wake.resolve();
  };
  const progress = (line: string) => tell({ progress: line });
  const built = services.maker
    .buildDebian({ kind, suite, include, signal, progress })
    .then((made) => services.catalogue.put(call.principal.project, name, made))
    .then((record) => tell({ artifact: artifactView(record) }))
    .catch((error: unknown) => {
      const { body, typed } = failureOf(error);
      if (typed.kind === "Internal") services.log.error({ err: error }, "a build failed");
      tell(body);
    });
  for (let done = false; !done; ) {
    await wake.promise;
    wake = Promise.withResolvers<void>();
    for (const event of events.splice(0)) {
      done ||= !("progress" in event);
      yield Buffer.from(`${JSON.stringify(event)}\n`);
    }
  }
  await built;
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
