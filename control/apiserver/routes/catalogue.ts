import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { type ArtifactRecord, SHARED_PROJECT } from "#images/catalogue.ts";
import type { SharedStore } from "../../artifacts.ts";
import { authorize } from "../../iam/iam.ts";
import { collect, garbage } from "../collecting.ts";
import type { Handlers, Services } from "../handler.ts";
import { artifactView } from "../views.ts";

type Names = "tagArtifact" | "deriveArtifact" | "pushArtifact" | "pullArtifact" | "collectArtifacts" | "collectStore";

/** The calls about names of artifacts, and about sharing them. */
export function catalogueHandlers(services: Services): Pick<Handlers, Names> {
  const { catalogue, store } = services;
  return {
    async collectArtifacts({ principal, query: { dryRun = false }, scope: { signal } }) {
      authorize(principal, "operate", principal.project);
      return dryRun ? await garbage(services, signal) : { layers: [...(await collect(services, signal))] };
    },

    async collectStore({ principal, query: { dryRun = false }, scope: { signal } }) {
      authorize(principal, "operate", principal.project);
      return await needed(store).collect({ dryRun }, signal);
    },

    async tagArtifact({ body: { target, shared = false }, params, principal }) {
      const { project } = principal;
      const scope = shared ? SHARED_PROJECT : project;
      authorize(principal, "use", scope);
      return artifactView(await catalogue.tag(project, params.name ?? "", target, scope));
    },

    async deriveArtifact({ body: { target, kind, over, config, labels = {} }, params, principal: { project } }) {
      const source = await catalogue.resolve(project, params.name ?? "");
      if (source.kind === "vm-image") {
        throw new SandboxError("InvalidArgument", `${params.name} is a disk, and nothing else can be made of it`, {
          hint: "another name for it: dsec image tag",
        });
      }
      const below = over === undefined ? undefined : await catalogue.resolve(project, over);
      const provenance = below === undefined ? source.provenance : `${source.provenance}, over ${below.digest}`;
      const parts = {
        layers: layersAbove(source, below),
        sizeBytes: Math.max(0, source.sizeBytes - (below?.sizeBytes ?? 0)),
        parents: below === undefined ? source.parents : [below.digest],
      };
      const { env = {}, user, workdir, image } = config ?? source.config;
      const made = { kind, ...parts, config: { env, user, workdir, ...(image && { image }) }, labels, provenance };
      return artifactView(await catalogue.put(project, target, made));
    },

    async pushArtifact({ params, principal: { project }, scope: { signal } }) {
      const shared = needed(store);
      const record = await catalogue.resolve(project, params.name ?? "");
      if (record.tag === "") {
        throw new SandboxError("InvalidArgument", `${params.name} is no tag, and tags are what is pushed`, {
          hint: "give it a tag first: dsec image tag",
        });
      }
      await shared.share(record, signal);
      await catalogue.published(record);
      return artifactView({ ...record, isPublished: true });
    },

    async pullArtifact({ params, principal: { project }, scope: { signal } }) {
      const shared = needed(store);
      const record = await catalogue.refresh(project, params.name ?? "");
      await shared.provide(record, signal);
      return artifactView(record);
    },
  };
}

/** What an artifact has over the one that it was made on. */
function layersAbove({ layers, digest }: ArtifactRecord, below: ArtifactRecord | undefined): readonly LayerDigest[] {
  const lower = below?.layers ?? [];
  if (lower.length < layers.length && lower.every((layer, index) => layers[index] === layer)) {
    return layers.slice(lower.length);
  }
  throw new SandboxError("FailedPrecondition", `${digest} has no layers of its own over ${below?.digest}`, {
    hint: "name the artifact that it was made on; in a chain of very many packs the layers of both have become one",
  });
}

function needed(store: SharedStore | undefined): SharedStore {
  if (store !== undefined) return store;
  throw new SandboxError("FailedPrecondition", "this node shares artifacts with no other: it has no store", {
    hint: "start it with --store (DSEC_STORE)",
  });
}
