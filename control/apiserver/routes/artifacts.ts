import type { QueryOf } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind } from "#core/sandbox.ts";
import type { NewArtifact } from "#images/catalogue.ts";
import { parsePlace } from "#images/place.ts";
import { parseReference } from "#images/reference.ts";
import type { ArtifactMaker } from "../../artifacts.ts";
import { collect } from "../collecting.ts";
import { JSON_LINES } from "../event-forms.ts";
import type { Handlers, Services } from "../handler.ts";
import { makingEvents } from "../making.ts";
import { reachOf } from "../reach.ts";
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
      const made = await importBody(maker, query, source, scope.signal);
      const labels = Object.fromEntries((query.label ?? []).map(labelOf));
      return artifactView(await catalogue.put(project, query.name, { ...made, labels }));
    },

    async importFrom({ body: { name, kind, source, at, labels = {} }, principal, response, scope }) {
      const { project } = principal;
      const reach = reachOf(principal);
      parseReference(name);
      checkPlace(kind, at);
      const { signal } = scope;
      const make = (progress: (line: string) => void) =>
        maker.importFrom({ kind, source, at, reach, signal, progress });
      await sendBytes(makingEvents(services, { project, name, labels, make }), response, scope, JSON_LINES);
    },

    async buildArtifact({ body, principal: { project }, response, scope }) {
      const { name, kind = "base", suite, include = [], desktop = false, labels = {} } = body;
      parseReference(name);
      if (desktop && kind !== "vm-image") {
        throw new SandboxError("InvalidArgument", "a desktop is for a vm-image", { details: { field: "desktop" } });
      }
      const { signal } = scope;
      const make = (progress: (line: string) => void) =>
        maker.buildDebian({ kind, suite, include, desktop, signal, progress });
      await sendBytes(makingEvents(services, { project, name, labels, make }), response, scope, JSON_LINES);
    },

    async listArtifacts({ principal: { project }, query }) {
      const asked = (query.label ?? []).map(labelOf);
      const found = await catalogue.list(project);
      const carriers = found.filter(({ labels }) => asked.every(([name, value]) => labels[name] === value));
      return { artifacts: carriers.map(artifactView) };
    },

    async inspectArtifact({ principal: { project }, params }) {
      return artifactView(await catalogue.resolve(project, params.name ?? ""));
    },

    async removeArtifact({ principal: { project }, params, scope: { signal } }) {
      await catalogue.remove(project, params.name ?? "");
      await collect(services, signal).catch((error: unknown) =>
        services.log.warn({ err: error }, "unused layers were not collected; the next removal tries again"),
      );
    },
  };
}

async function importBody(
  maker: ArtifactMaker,
  { kind, format, at, firmware, devices, agent }: QueryOf<"importArtifact">,
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<NewArtifact> {
  const isVm = kind === "vm-image";
  if (isVm !== (format === "vm")) {
    throw new SandboxError("InvalidArgument", "what is imported in the format vm is a vm-image, and nothing else is", {
      hint: "give both, or neither: format=vm&kind=vm-image",
    });
  }
  if (format !== "vm") {
    if (firmware !== undefined || devices !== undefined || agent !== undefined) {
      throw new SandboxError("InvalidArgument", "firmware, devices and agent are for a vm-image", {
        hint: "leave them out",
      });
    }
    checkPlace(kind, at);
    return await maker.importArchive({ kind, format: format ?? "tar", source, at, signal });
  }
  if (at !== undefined)
    throw new SandboxError("InvalidArgument", "a vm-image begins nowhere in a sandbox", { hint: "leave out at" });
  return await maker.importVmImage({
    shape: { firmware: firmware ?? "bios", devices: devices ?? "virtio", ...(agent === true ? { agent } : {}) },
    source,
    signal,
  });
}

/** A bad place shows before the upload. */
function checkPlace(kind: ArtifactKind, at: string | undefined): void {
  if (at === undefined || parsePlace(at).length === 0 || kind !== "base") return;
  throw new SandboxError("InvalidArgument", `a base begins at /, not at ${JSON.stringify(at)}`, {
    hint: "import it as a workspace or toolkit, or leave the place out",
  });
}

function labelOf(text: string): readonly [string, string] {
  const at = text.indexOf("=");
  return [text.slice(0, at), text.slice(at + 1)];
}
