import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { createGzip, createZstdCompress } from "node:zlib";
import type { ImageConfig, LayerDigest } from "#core/sandbox.ts";
import { Batch } from "#core/tar/batch.ts";
import { endOfArchive, type TarEntry, tarHeader, tarPadding } from "#core/tar/writer.ts";
import { interruptible } from "../archive/source.ts";
import { through } from "../archive/through.ts";
import { canonicalJson, sha256, sha256Hex } from "../digest.ts";
import { hostArchitecture } from "../oci/select.ts";
import { writeWithinRoom } from "../room.ts";
import { type LayerPlaces, openLayer } from "./content.ts";
import { layerTar } from "./layer-tar.ts";

/** How layers are compressed on their way out. */
export type Compression = "gzip" | "zstd" | "none";

/** What goes out. */
export interface LayoutOptions extends LayerPlaces {
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  /** What the image is called in the layout. */
  readonly reference: string;
  readonly compression: Compression;
  readonly signal: AbortSignal;
  readonly progress: (line: string) => void;
}

const MEDIA_TYPES: Readonly<Record<Compression, string>> = {
  gzip: "application/vnd.oci.image.layer.v1.tar+gzip",
  zstd: "application/vnd.oci.image.layer.v1.tar+zstd",
  none: "application/vnd.oci.image.layer.v1.tar",
};
const LAYOUT_FILE = "oci-layout";
const INDEX_FILE = "index.json";
const BLOBS = "blobs/sha256";
const PIECE_BYTES = 256 * 1024;

interface Blob {
  readonly digest: string;
  readonly size: number;
}

/**
 * Writes an artifact as an OCI image layout into the empty directory `dir`, for this host's processor. Nothing in it says when or
 * where: the same artifact gives the same bytes. Rejects with `InvalidArgument` for what OCI cannot say, `StorageFull`, or the signal's
 * reason.
 */
export async function writeLayout(dir: string, options: LayoutOptions): Promise<void> {
  await mkdir(join(dir, BLOBS), { recursive: true });
  const layers: Blob[] = [];
  const diffIds: string[] = [];
  for (const [index, digest] of options.layers.entries()) {
    options.progress(`layer ${index + 1} of ${options.layers.length}`);
    const { blob, diffId } = await writeLayer(dir, digest, options);
    layers.push(blob);
    diffIds.push(diffId);
  }
  const config = await writeJson(dir, configOf(options.config, diffIds));
  const manifestType = "application/vnd.oci.image.manifest.v1+json";
  const manifest = await writeJson(dir, {
    schemaVersion: 2,
    mediaType: manifestType,
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...config },
    layers: layers.map((layer) => ({ mediaType: MEDIA_TYPES[options.compression], ...layer })),
  });
  const annotations = { "org.opencontainers.image.ref.name": options.reference };
  await write(join(dir, LAYOUT_FILE), canonicalJson({ imageLayoutVersion: "1.0.0" }));
  const manifests = [{ mediaType: manifestType, ...manifest, platform: platform(), annotations }];
  await write(join(dir, INDEX_FILE), canonicalJson({ schemaVersion: 2, manifests }));
}

/** A layout as a tar archive, always with the same bytes. */
export async function* layoutArchive(dir: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const blobs = (await readdir(join(dir, BLOBS))).sort().map((name) => `${BLOBS}/${name}`);
  const batch = new Batch();
  for (const name of ["blobs/", `${BLOBS}/`]) batch.push(tarHeader(entryOf("directory", name, 0)));
  for (const name of [LAYOUT_FILE, INDEX_FILE, ...blobs]) {
    const file = join(dir, name);
    const { size } = await stat(file);
    batch.push(tarHeader(entryOf("file", name, size)));
    for await (const piece of createReadStream(file, { highWaterMark: PIECE_BYTES, signal })) {
      const full = batch.add(piece as Uint8Array);
      if (full !== undefined) yield full;
    }
    batch.push(tarPadding(size));
  }
  batch.push(endOfArchive());
  yield batch.take();
}

async function writeLayer(dir: string, digest: LayerDigest, options: LayoutOptions) {
  const { compression, signal } = options;
  await using layer = await openLayer(options, digest, signal);
  const plain = sha256();
  const unfinished = join(dir, "layer");
  const tar = interruptible(layerTar(layer), signal);
  const { sizeBytes: size, sha256: hex } = await writeWithinRoom(
    unfinished,
    compressed(hashed(tar, plain), compression),
  );
  await rename(unfinished, join(dir, BLOBS, hex));
  return { blob: { digest: `sha256:${hex}`, size }, diffId: `sha256:${plain.hex()}` };
}

async function* hashed(source: AsyncIterable<Uint8Array>, running: ReturnType<typeof sha256>) {
  for await (const piece of source) {
    running.update(piece);
    yield piece;
  }
}

/** gzip of Node's zlib names neither a time nor a file. */
function compressed(source: AsyncIterable<Uint8Array>, compression: Compression): AsyncIterable<Uint8Array> {
  if (compression === "none") return source;
  const options = { chunkSize: PIECE_BYTES };
  return through(source, compression === "gzip" ? createGzip(options) : createZstdCompress(options));
}

function configOf({ env, user, workdir, image = {} }: ImageConfig, diffIds: readonly string[]) {
  const config = {
    Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
    ...(user === undefined ? {} : { User: user }),
    ...(workdir === undefined ? {} : { WorkingDir: workdir }),
    ...(image.labels === undefined ? {} : { Labels: image.labels }),
    ...(image.command === undefined ? {} : { Cmd: image.command }),
    ...(image.entrypoint === undefined ? {} : { Entrypoint: image.entrypoint }),
  };
  return { ...platform(), config, rootfs: { type: "layers", diff_ids: diffIds } };
}

function platform() {
  return { architecture: hostArchitecture(), os: "linux" };
}

async function writeJson(dir: string, value: unknown): Promise<Blob> {
  const text = canonicalJson(value);
  const hex = sha256Hex(text);
  await write(join(dir, BLOBS, hex), text);
  return { digest: `sha256:${hex}`, size: Buffer.byteLength(text) };
}

async function write(path: string, text: string): Promise<void> {
  await using file = await open(path, "w", 0o600);
  await file.writeFile(text);
}

function entryOf(type: "file" | "directory", name: string, size: number): TarEntry {
  const plain = { uid: 0, gid: 0, mtimeNs: 0n, target: undefined, device: 0 };
  return { type, name: Buffer.from(name), mode: type === "file" ? 0o644 : 0o755, size, ...plain };
}
