import { importPackages } from "./apt.ts";
import { importGit } from "./git.ts";
import { importFromRegistry } from "./registry.ts";
import type { Importer, ImportSource, SourceContext, SourcedArtifact } from "./source.ts";

type Importers = { readonly [Type in ImportSource["type"]]: Importer<Extract<ImportSource, { readonly type: Type }>> };

/** Every kind of source and who imports it. */
const IMPORTERS: Importers = { apt: importPackages, git: importGit, registry: importFromRegistry };

/**
 * Imports what the node fetches itself. Rejects with `InvalidArgument` for what is damaged or no artifact, `NotFound`,
 * `PermissionDenied`, `Unavailable` for a server that is out of reach, `StorageFull`, or the signal's reason.
 */
export function importFrom(source: ImportSource, context: SourceContext): Promise<SourcedArtifact> {
  // The table ties each kind to its importer; the compiler cannot follow that through an index.
  const importer = IMPORTERS[source.type] as Importer<ImportSource>;
  return importer(source, context);
}
