import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { badInput, type TreeEntry } from "#core/tar/entry.ts";
import { dataExtents } from "#host/sys/holes.ts";
import { convertToRaw } from "#host/vmm/qemu/convert.ts";
import { typedStorageErrors } from "../durable.ts";
import { buildLayer, type Feed } from "../layers/layer.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { DiskRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { type ImageBytes, type ImageFacts, inspectImage } from "./header.ts";

/** The files of the layer that a `vm-image` has: a disk or a CD; beside a disk that was built here, what starts it; beside one of a sandbox, what its firmware kept. */
export const VM_IMAGE_FILES = {
  disk: "disk",
  cdrom: "cdrom",
  kernel: "kernel",
  initramfs: "initramfs",
  variables: "variables",
} as const;

/** A file on its way in that lies nowhere as it is: in order, without its holes. Bytes are good until the next are asked for. */
export interface FileParts {
  readonly sizeBytes: number;
  readonly parts: AsyncIterable<{ readonly offset: number; readonly bytes: Buffer }>;
}

/** An image on its way in. */
export interface VmImageOptions {
  readonly store: LayerStore;
  readonly source: AsyncIterable<Uint8Array>;
  /** Whose rights reading it takes: nothing else may have them. */
  readonly uid: number;
  readonly signal: AbortSignal;
}

/** An image that is in the store. */
export interface ImportedVmImage {
  readonly layers: readonly LayerDigest[];
  readonly sizeBytes: number;
  readonly format: ImageFacts["format"];
}

const UPLOAD = "upload";
const CONVERTED = "disk";
const READ_BYTES = 2 ** 20;
const SECTOR_BYTES = 512;

/**
 * Takes an image of a disk or a CD into the store, as a layer with one file: the plain bytes of the disk, whatever form they came in. Equal disks share
 * their data. Throws what `inspectImage` and `convertToRaw` throw, `StorageFull`, and leaves nothing then.
 */
export async function importVmImage(options: VmImageOptions): Promise<ImportedVmImage> {
  const { store, source, signal } = options;
  await using scratch = await store.scratch();
  return await typedStorageErrors(async () => {
    const upload = join(scratch.dir, UPLOAD);
    await receive(source, upload, { room: new DiskRoom(scratch.dir), signal });
    const facts = inspectFile(upload);
    let plain = upload;
    if (facts.format === "qcow2" || facts.format === "vmdk") {
      const room = () => new DiskRoom(scratch.dir).take(1);
      const { format, virtualBytes } = facts;
      const files = { dir: scratch.dir, from: UPLOAD, to: CONVERTED };
      await convertToRaw({ ...files, format, virtualBytes, uid: options.uid, guard: room, signal });
      plain = join(scratch.dir, CONVERTED);
    }
    const name = facts.format === "iso" ? VM_IMAGE_FILES.cdrom : VM_IMAGE_FILES.disk;
    return { ...(await storeFiles(store, { [name]: plain }, signal)), format: facts.format };
  });
}

async function receive(
  source: AsyncIterable<Uint8Array>,
  path: string,
  { room, signal }: { readonly room: DiskRoom; readonly signal: AbortSignal },
): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  for await (const bytes of source) {
    signal.throwIfAborted();
    await room.take(bytes.length);
    await file.writeFile(bytes);
  }
}

function inspectFile(path: string): ImageFacts {
  const fd = openSync(path, "r");
  try {
    const facts = inspectImage(imageBytes(fd));
    const { size } = fstatSync(fd);
    const isPlain = facts.format === "raw" || facts.format === "iso";
    if (!isPlain || size % SECTOR_BYTES === 0) return facts;
    throw badInput(`an image of ${size} bytes is cut off: disks have whole sectors`);
  } finally {
    closeSync(fd);
  }
}

function imageBytes(fd: number): ImageBytes {
  return {
    sizeBytes: fstatSync(fd).size,
    read(offset, length) {
      const buffer = Buffer.alloc(length);
      return buffer.subarray(0, readSync(fd, buffer, 0, length, offset));
    },
  };
}

/** Makes a layer of these files, paths or parts, by their names in it. */
export async function storeFiles(
  store: LayerStore,
  files: Readonly<Record<string, string | FileParts>>,
  signal: AbortSignal,
): Promise<Omit<ImportedVmImage, "format">> {
  const parts = { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  const { digest, sizeBytes } = await buildLayer(parts, async (feed) => {
    feed.builder.entry(entryOf(".", "directory", 0));
    for (const [name, file] of Object.entries(files)) {
      if (typeof file === "string") await addPath(feed, name, file, signal);
      else await addFile(feed, name, file, signal);
    }
  });
  return { layers: [digest], sizeBytes };
}

async function addPath(feed: Feed, name: string, path: string, signal: AbortSignal): Promise<void> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  await addFile(feed, name, { sizeBytes: size, parts: partsOf(file, size) }, signal);
}

async function* partsOf(
  file: FileHandle,
  size: number,
): AsyncGenerator<{ offset: number; bytes: Buffer }, void, undefined> {
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  for (const extent of dataExtents(file.fd, size)) {
    for (let offset = extent.offset; offset < extent.offset + extent.size; ) {
      const { bytesRead } = await file.read(
        buffer,
        0,
        Math.min(READ_BYTES, extent.offset + extent.size - offset),
        offset,
      );
      if (bytesRead === 0) throw new Error("a file that became shorter while it was read");
      yield { offset, bytes: buffer.subarray(0, bytesRead) };
      offset += bytesRead;
    }
  }
}

/** Bytes alone, as root's: times and the like are no part of a disk. */
async function addFile(
  { builder, drain }: Feed,
  name: string,
  { sizeBytes, parts }: FileParts,
  signal: AbortSignal,
): Promise<void> {
  builder.entry(entryOf(name, "file", sizeBytes));
  let at = 0;
  for await (const { offset, bytes } of parts) {
    signal.throwIfAborted();
    builder.hole(offset - at);
    builder.data(bytes);
    at = offset + bytes.length;
    await drain();
  }
  builder.hole(sizeBytes - at);
}

function entryOf(path: string, type: "directory" | "file", size: number): TreeEntry {
  const attributes = {
    mode: type === "file" ? 0o400 : 0o755,
    uid: 0,
    gid: 0,
    mtimeS: 0,
    mtimeNs: 0,
    xattrs: undefined,
  };
  return { path, type, size, target: "", major: 0, minor: 0, ...attributes };
}
