import { arch } from "node:os";
import { badInput, shown } from "#core/tar/entry.ts";
import { Document, MAX_DOCUMENT_BYTES, parseJson } from "./json.ts";
import type { Spool } from "./spool.ts";

/** An image of an archive: where its config and its layers lie, lowest first. */
export interface ImagePlan {
  readonly config: Document;
  readonly layers: readonly { readonly path: string; readonly sha256: string | undefined }[];
}

/** An index that names an index that names … */
const MAX_INDEX_DEPTH = 4;

/** Node's names of processors where OCI has others. */
const OCI_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** The architecture of this host in OCI's words. */
export function hostArchitecture(): string {
  return OCI_ARCHITECTURES[arch()] ?? arch();
}

/** Finds the one image that fits this host, and `reference` if given. Throws `InvalidArgument` naming the choices. */
export async function selectImage(spool: Spool, reference: string | undefined): Promise<ImagePlan> {
  if (spool.has("index.json")) return ociImage(spool, reference);
  if (spool.has("manifest.json")) return dockerImage(spool, reference);
  throw badInput(
    "the archive is no image: it has neither index.json nor manifest.json",
    "import a plain file tree with the format tar",
  );
}

async function ociImage(spool: Spool, reference: string | undefined): Promise<ImagePlan> {
  const manifest = await manifestOf(spool, "index.json", reference, 0);
  const descriptor = manifest.object("config");
  if (descriptor === undefined) throw badInput("the image manifest names no config");
  const config = await document(spool, blobPath(spool, descriptor.required("digest")));
  const layers = manifest.objects("layers").map((layer) => {
    const type = layer.text("mediaType") ?? "";
    if (type.includes("encrypted"))
      throw badInput("the image has an encrypted layer", "decrypt it first, with skopeo copy");
    return { path: blobPath(spool, layer.required("digest")), sha256: undefined };
  });
  return withDiffIds({ config, layers });
}

async function manifestOf(spool: Spool, path: string, reference: string | undefined, depth: number): Promise<Document> {
  if (depth > MAX_INDEX_DEPTH) throw badInput("the image indexes of the archive are nested too deep");
  const index = await document(spool, path);
  const named = index.objects("manifests").filter((entry) => reference === undefined || nameOf(entry) === reference);
  const fitting = named.filter(fitsHost);
  const [chosen] = fitting;
  if (chosen === undefined || fitting.length > 1)
    throw ambiguous(fitting.length > 1 ? fitting : index.objects("manifests"), reference);
  const blob = blobPath(spool, chosen.required("digest"));
  const isIndex = /image\.index|manifest\.list/.test(chosen.text("mediaType") ?? "");
  return isIndex ? manifestOf(spool, blob, undefined, depth + 1) : document(spool, blob);
}

/** Descriptors without a platform are taken at their word; the config is checked later. */
function fitsHost(entry: Document): boolean {
  const platform = entry.object("platform");
  if (platform === undefined) return true;
  return platform.text("os") === "linux" && platform.text("architecture") === hostArchitecture();
}

async function dockerImage(spool: Spool, reference: string | undefined): Promise<ImagePlan> {
  const list = parseJson("manifest.json", await spool.read("manifest.json", MAX_DOCUMENT_BYTES));
  const images = (Array.isArray(list) ? list : []).map((entry) => new Document("manifest.json", entry));
  const fitting = images.filter((image) => reference === undefined || image.texts("RepoTags").includes(reference));
  const [chosen] = fitting;
  if (chosen === undefined || fitting.length > 1) throw ambiguous(images, reference);
  const config = await document(spool, chosen.required("Config"));
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

async function document(spool: Spool, path: string): Promise<Document> {
  return new Document(shown(path), parseJson(shown(path), await spool.read(path, MAX_DOCUMENT_BYTES)));
}

/** The path of a blob whose content has the digest that names it. */
function blobPath(spool: Spool, digest: string): string {
  const path = `blobs/sha256/${hexOfDigest(digest)}`;
  if (spool.sha256(path) !== hexOfDigest(digest)) throw badInput(`${shown(path)} of the image archive is damaged`);
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
