import { hostOfImage } from "#host/fetch/image-name.ts";
import { importPackages } from "./apt.ts";
import { importGit } from "./git.ts";
import { importFromRegistry } from "./registry.ts";
import type { Importer, ImportSource, SourceContext, SourcedArtifact } from "./source.ts";

type Importers = { readonly [Type in ImportSource["type"]]: Importer<Extract<ImportSource, { readonly type: Type }>> };

/** Every kind of source and who imports it. */
const IMPORTERS: Importers = { apt: importPackages, git: importGit, registry: importFromRegistry };

/**
 * Imports what the node fetches itself. Rejects with `InvalidArgument` for what is damaged or no artifact, `NotFound`,
 * `PermissionDenied`, also for an address that the gateway does not let through, `Unavailable` for a server that is out of reach, `StorageFull`, or the signal's reason.
 */
export async function importFrom(source: ImportSource, context: SourceContext): Promise<SourcedArtifact> {
  const { gateway } = context;
  const host = gateway === undefined ? undefined : hostOf(source);
  if (host !== undefined) await gateway?.check(host);
  // The table ties each kind to its importer; the compiler cannot follow that through an index.
  const importer = IMPORTERS[source.type] as Importer<ImportSource>;
  try {
    return await importer(source, context);
  } catch (error) {
    throw gateway?.explain(error) ?? error;
  }
}

/** Where a source says that it is; `undefined` for what its importer refuses, or the node's own archives. */
function hostOf(source: ImportSource): string | undefined {
  if (source.type === "apt") return undefined;
  if (source.type === "registry") return hostOfImage(source.image);
  return URL.canParse(source.url) ? new URL(source.url).hostname.replace(/^\[|\]$/g, "") : undefined;
}
