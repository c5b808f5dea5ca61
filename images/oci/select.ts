import { arch } from "node:os";
import { badInput, shown } from "#core/tar/entry.ts";
import type { ImageFiles } from "./files.ts";
import { Document, MAX_DOCUMENT_BYTES, parseJson } from "./json.ts";

/** An image of an archive: where its config and its layers lie, lowest first. */
export interface ImagePlan {
  readonly config: Document;
  readonly layers: readonly { readonly path: string; readonly sha256: string | undefined }[];
}

/** An index that names an index that names … */
const MAX_INDEX_DEPTH = 4;

/** Layers that are tar archives, with a compression that is recognised by its first bytes. */
const LAYER_TYPE =
  /^application\/vnd\.(?:oci\.image\.layer\.v1|docker\.image\.rootfs\.diff)\.tar(?:[.+](?:gzip|zstd))?$/;

/** Node's names of processors where OCI has others. */
const OCI_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** The architecture of this host in OCI's words. */
export function hostArchitecture(): string {
  return OCI_ARCHITECTURES[arch()] ?? arch();
}

/** Finds the one image that fits this host, and `reference` if given. Throws `InvalidArgument` naming the choices. */
export async function selectImage(files: ImageFiles, reference: string | undefined): Promise<ImagePlan> {
  if (files.has("index.json")) return ociImage(files, reference);
  if (files.has("manifest.json")) return dockerImage(files, reference);
  throw badInput(
    "the archive is no image: it has neither index.json nor manifest.json",
    "import a plain file tree with the format tar",
  );
}

async function ociImage(files: ImageFiles, reference: string | undefined): Promise<ImagePlan> {
  const manifest = await manifestOf(files, "index.json", reference, 0);
  const descriptor = manifest.object("config");
  if (descriptor === undefined) throw badInput("the image manifest names no config");
  const config = await document(files, await blobPath(files, descriptor.required("digest")));
  const layers: { path: string; sha256: undefined }[] = [];
  for (const layer of manifest.objects("layers")) {
    checkLayer(layer);
    layers.push({ path: await blobPath(files, layer.required("digest")), sha256: undefined });
  }
  return withDiffIds({ config, layers });
}

/** Refuses what is no file tree that lies in the image itself. */
function checkLayer(layer: Document): void {
  const type = layer.text("mediaType");
  if (type?.includes("encrypted"))
    throw badInput("the image has an encrypted layer", "decrypt it first, with skopeo copy");
  if (/foreign|nondistributable/.test(type ?? "")) {
    throw badInput(
      "the image has a layer that lies elsewhere, at an address of its own",
      "rebuild it with that layer inside",
    );
  }
  if (type !== undefined && !LAYER_TYPE.test(type))
    throw badInput(`a layer of the image has the unknown type ${shown(type)}`);
}

async function manifestOf(
  files: ImageFiles,
  path: string,
  reference: string | undefined,
  depth: number,
): Promise<Document> {
  if (depth > MAX_INDEX_DEPTH) throw badInput("the image indexes of the archive are nested too deep");
  const index = await document(files, path);
  const named = index.objects("manifests").filter((entry) => reference === undefined || nameOf(entry) === reference);
  const fitting = named.filter(fitsHost);
  const [chosen] = fitting;
  if (chosen === undefined || fitting.length > 1)
    throw ambiguous(fitting.length > 1 ? fitting : index.objects("manifests"), reference);
  const blob = await blobPath(files, chosen.required("digest"));
  const isIndex = /image\.index|manifest\.list/.test(chosen.text("mediaType") ?? "");
  return isIndex ? manifestOf(files, blob, undefined, depth + 1) : document(files, blob);
}

/** Descriptors without a platform are taken at their word; the config is checked later. */
function fitsHost(entry: Document): boolean {
  const platform = entry.object("platform");
  if (platform === undefined) return true;
  return platform.text("os") === "linux" && platform.text("architecture") === hostArchitecture();
}

async function dockerImage(files: ImageFiles, reference: string | undefined): Promise<ImagePlan> {
  const list = parseJson("manifest.json", await files.read("manifest.json", MAX_DOCUMENT_BYTES));
  const images = (Array.isArray(list) ? list : []).map((entry) => new Document("manifest.json", entry));
  const fitting = images.filter((image) => reference === undefined || image.texts("RepoTags").includes(reference));
  const [chosen] = fitting;
  if (chosen === undefined || fitting.length > 1) throw ambiguous(images, reference);
  const config = await document(files, chosen.required("Config"));
  return withDiffIds({ config, layers: chosen.texts("Layers").map((path) => ({ path, sha256: undefined })) });
}

/** Adds to each layer the hash its plain tar must have. */
function withDiffIds(plan: ImagePlan): ImagePlan {
  const diffIds = plan.config.object("rootfs")?.texts("diff_ids") ?? [];
  if (diffIds.length !== plan.layers.length) throw badInput("the config of the image does not name its layers");
  if (diffIds.length === 0) throw badInput("the image has no layers");
  return {
    config: plan.config,
    layers: plan.layers.map(({ path }, index) => ({ path, sha256: hexOfDigest(diffIds[index] ?? "") })),
  };
}

async function document(files: ImageFiles, path: string): Promise<Document> {
  return new Document(shown(path), parseJson(shown(path), await files.read(path, MAX_DOCUMENT_BYTES)));
}

/** The path of a blob whose content has the digest that names it. */
async function blobPath(files: ImageFiles, digest: string): Promise<string> {
  const path = `blobs/sha256/${hexOfDigest(digest)}`;
  if ((await files.sha256(path)) !== hexOfDigest(digest))
    throw badInput(`${shown(path)} of the image archive is damaged`);
  return path;
}

function hexOfDigest(digest: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(digest)?.[1];
  if (hex === undefined) throw badInput(`${shown(digest)} in the image archive is no SHA-256 digest`);
  return hex;
}

function nameOf(entry: Document): string | undefined {
  const annotations = entry.object("annotations");
  return annotations?.text("org.opencontainers.image.ref.name") ?? annotations?.text("io.containerd.image.name");
}

function ambiguous(entries: readonly Document[], reference: string | undefined): Error {
  const names = entries.flatMap((entry) => {
    const platform = entry.object("platform");
    const on = platform === undefined ? "" : ` (${platform.text("os") ?? "?"}/${platform.text("architecture") ?? "?"})`;
    return `${nameOf(entry) ?? entry.texts("RepoTags")[0] ?? "unnamed"}${on}`;
  });
  const wanted = `linux/${hostArchitecture()}${reference === undefined ? "" : ` named ${shown(reference)}`}`;
  return badInput(
    `the archive does not hold exactly one image for ${wanted}`,
    `it holds: ${names.slice(0, 20).join(", ") || "none"}`,
  );
}
