import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { badInput, shown } from "#core/tar/entry.ts";
import { copyFromRegistry, type RegistryOptions, readManifest } from "#host/fetch/skopeo.ts";
import { sha256Hex } from "../digest.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { importImage } from "../oci/import.ts";
import { Document, parseJson } from "../oci/json.ts";
import { LayoutDirectory } from "../oci/layout.ts";
import { hostArchitecture } from "../oci/select.ts";
import { DiskRoom } from "../room.ts";
import type { RegistrySource, SourceContext, SourcedArtifact } from "./source.ts";

const MANIFEST_TYPE =
  /^application\/vnd\.(?:oci\.image\.(?:manifest|index)\.v1|docker\.distribution\.manifest(?:\.list)?\.v2)\+json$/;

/**
 * Imports an image of a registry, of one for several processors the part for this host's. The digest that its name has now is
 * what is fetched, however the tag moves meanwhile, and what the provenance says.
 */
export async function importFromRegistry(source: RegistrySource, context: SourceContext): Promise<SourcedArtifact> {
  const { store, signal, progress, gateway } = context;
  await using scratch = await store.scratch();
  const dir = join(scratch.dir, "skopeo");
  await mkdir(dir, { mode: 0o700 });
  const { image, credentials, insecure } = source;
  const options: RegistryOptions = {
    ...{ image, credentials, insecure, dir, signal, settings: context.registries, gateway },
    maxFileBytes: DEFAULT_LIMITS.dataBytes,
    onLine: progress,
    guard: () => new DiskRoom(dir).take(1),
  };
  progress(`looking up ${image}`);
  const manifest = await readManifest(options);
  checkManifest(manifest);
  const digest = `sha256:${sha256Hex(manifest)}`;
  progress(`fetching ${digest}`);
  const layout = join(dir, "layout");
  await copyFromRegistry(options, { digest, architecture: hostArchitecture(), layout });
  const imported = await importImage(
    { store, limits: DEFAULT_LIMITS, whiteouts: "oci", devices: context.kind === "base" ? "skip" : "refuse" },
    new LayoutDirectory(layout),
    { signal, onLayer: (number, count) => progress(`layer ${number} of ${count}`) },
  );
  return { ...imported, provenance: `docker://${image.replace(/@.*/, "")}@${digest}` };
}

/** Refuses what is no image before anything of it is fetched. */
function checkManifest(manifest: Buffer): void {
  const document = new Document("the manifest", parseJson("the manifest", manifest.toString("utf8")));
  const type = document.text("mediaType");
  if (document.number("schemaVersion") === 1) {
    throw badInput(
      "the image has a manifest of schema 1, whose layers nobody can verify",
      "push it again with a tool of this decade",
    );
  }
  if (type !== undefined && !MANIFEST_TYPE.test(type))
    throw badInput(`the registry has ${shown(type)} there, and no image`);
}
