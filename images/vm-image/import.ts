import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { badInput, type TreeEntry } from "#core/tar/entry.ts";
import { dataExtents } from "#host/sys/holes.ts";
import { convertToRaw } from "#host/vmm/qemu/convert.ts";
import { typedStorageErrors } from "../durable.ts";
import { buildLayer, type Feed } from "../layer.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { DiskRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { type ImageBytes, type ImageFacts, inspectImage } from "./header.ts";

/** The files of the layer that a `vm-image` has: a disk or a CD; beside a disk that was built here, what starts it. */
export const VM_IMAGE_FILES = { disk: "disk", cdrom: "cdrom", kernel: "kernel", initramfs: "initramfs" } as const;

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
    await file.write(bytes);
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

/** Makes a layer of these files, by their names in it. */
export async function storeFiles(
  store: LayerStore,
  files: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Omit<ImportedVmImage, "format">> {
  const parts = { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  const { digest, sizeBytes } = await buildLayer(parts, async (feed) => {
    feed.builder.entry(entryOf(".", "directory", 0));
    for (const [name, path] of Object.entries(files)) await addFile(feed, name, path, signal);
  });
  return { layers: [digest], sizeBytes };
}

/** Bytes alone, as root's: times and the like are no part of a disk. */
async function addFile({ builder, drain }: Feed, name: string, path: string, signal: AbortSignal): Promise<void> {
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    builder.entry(entryOf(name, "file", size));
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    let at = 0;
    for (const extent of dataExtents(fd, size)) {
      builder.hole(extent.offset - at);
      for (at = extent.offset; at < extent.offset + extent.size; ) {
        signal.throwIfAborted();
        const got = readSync(fd, buffer, 0, Math.min(READ_BYTES, extent.offset + extent.size - at), at);
        if (got === 0) throw new Error("a file that became shorter while it was read");
        builder.data(buffer.subarray(0, got));
        at += got;
        await drain();
      }
    }
    builder.hole(size - at);
  } finally {
    closeSync(fd);
  }
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
