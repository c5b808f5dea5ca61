import type { ArtifactMaker, DebianRequest } from "#control/index.ts";
import type { Clock } from "#core/clock.ts";
import { HOST_BUSYBOX, hostBusybox } from "#images/busybox.ts";
import type { NewArtifact } from "#images/catalogue.ts";
import { collectGarbage } from "#images/collect.ts";
import { buildDebian } from "#images/debian.ts";
import { type ImportedArtifact, importArtifact } from "#images/import.ts";
import type { LayerMounts } from "#images/mounts.ts";
import type { LayerStore } from "#images/store.ts";

/** A layer gets its name in the catalogue only after it is in the store; younger ones are left alone for so long. */
const NEW_LAYER_MS = 60 * 60_000;

/** Makes artifacts in the node's own store. The suite `host-busybox` stands for a tree of this machine's static busybox. */
export function artifactMaker(
  { store, mounts }: { readonly store: LayerStore; readonly mounts: Pick<LayerMounts, "unmountUnused"> },
  clock: Clock,
): ArtifactMaker {
  return {
    async importArchive({ kind, format, source, signal }) {
      const imported = await importArtifact({ store, source, format, kind, signal });
      return artifactOf(imported, kind, `${format} upload`);
    },
    async buildDebian(request) {
      if (request.suite === HOST_BUSYBOX) {
        return artifactOf(await hostBusybox(store, request.signal), request.kind, "the busybox of this machine");
      }
      const built = await buildDebian({ store, ...debianOptions(request) });
      return artifactOf(built, request.kind, ["debian", built.suite, ...request.include].join(" "));
    },
    async collect(keep) {
      // Before their files go: a mount would hold the space of what is removed.
      mounts.unmountUnused(keep);
      await collectGarbage(store, keep, { addedBeforeMs: clock.now() - NEW_LAYER_MS });
    },
  };
}

function debianOptions({ suite, include, signal, progress }: DebianRequest) {
  return { include, signal, progress, ...(suite === undefined ? {} : { suite }) };
}

function artifactOf(imported: ImportedArtifact, kind: NewArtifact["kind"], provenance: string): NewArtifact {
  const { layers, config, sizeBytes } = imported;
  return { kind, layers, config, sizeBytes, provenance };
}
