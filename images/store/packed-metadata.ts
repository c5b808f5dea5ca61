import { createReadStream } from "node:fs";
import { constants, createZstdCompress, createZstdDecompress } from "node:zlib";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { through } from "../archive/through.ts";
import { hexOf, sha256 } from "../digest.ts";
import { damagedLayer, type LayerManifest } from "../manifest.ts";
import { writeWithinRoom } from "../room.ts";
import { layerKey } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";

/** A layer and what its metadata is. */
export interface LayerMetadata {
  readonly digest: LayerDigest;
  readonly metadata: LayerManifest["metadata"];
}

type Bytes = AsyncIterable<Uint8Array>;

/** As for data: more costs more time than it saves. */
const LEVEL = 3;
/** What is usual at that level; nobody may ask a reader for a larger window. */
const WINDOW_LOG = 21;
const READ_BYTES = 2 ** 18;
/** What cannot be compressed may be longer than it was, by its frames' heads. */
const OVERHEAD_BYTES = 2 ** 16;

/** Where the metadata of a layer lies in a store that is fetched from: the whole of it as one zstd stream. */
export function packedMetadataKey(digest: LayerDigest): string {
  return `layers/${hexOf(digest)}/metadata.erofs.zst`;
}

/**
 * Writes the metadata image at `from` as one zstd stream into the new file `to`, within the node's room. Rejects with `Internal` when it is not what
 * the manifest says, and with `StorageFull`.
 */
export async function packMetadata(
  { digest, metadata }: LayerMetadata,
  { from, to, signal }: { readonly from: string; readonly to: string; readonly signal: AbortSignal },
): Promise<{ readonly sizeBytes: number; readonly sha256: string }> {
  const params = { [constants.ZSTD_c_compressionLevel]: LEVEL, [constants.ZSTD_c_windowLog]: WINDOW_LOG };
  const plain = createReadStream(from, { highWaterMark: READ_BYTES, signal });
  const whole = sha256();
  const checked = async function* () {
    for await (const part of plain) {
      whole.update(part);
      yield part;
    }
    if (whole.hex() !== metadata.sha256) throw damagedLayer(digest, "metadata");
  };
  return await writeWithinRoom(to, through(checked(), createZstdCompress({ params, chunkSize: READ_BYTES })));
}

/**
 * The plain bytes of a layer's metadata, as many as the manifest says at most: whoever reads compares their hash. Rejects with `Internal` for a
 * stream that is damaged, `NotFound`, and as the store does.
 */
export async function* fetchMetadata(layer: LayerMetadata, objects: ObjectStore, signal: AbortSignal): Bytes {
  const { digest, metadata } = layer;
  const range = { offset: 0, lengthBytes: metadata.sizeBytes };
  const key = layerKey(digest, "metadata");
  let isBegun = false;
  if (objects.path(key) === undefined) {
    try {
      for await (const part of unpacked(layer, objects.get(packedMetadataKey(digest), undefined, signal))) {
        isBegun = true;
        yield part;
      }
      return;
    } catch (error) {
      // As nodes of earlier versions put it, it lies there plain.
      if (isBegun || !(error instanceof SandboxError) || error.kind !== "NotFound") throw error;
    }
  }
  yield* objects.get(key, range, signal);
}

async function* unpacked({ digest, metadata }: LayerMetadata, source: Bytes): Bytes {
  const params = { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG };
  let sizeBytes = 0;
  try {
    const packed = atMost(source, metadata.sizeBytes + OVERHEAD_BYTES, () => damagedLayer(digest, "metadata"));
    for await (const part of through(packed, createZstdDecompress({ params, chunkSize: READ_BYTES }))) {
      sizeBytes += part.length;
      if (sizeBytes > metadata.sizeBytes) throw damagedLayer(digest, "metadata");
      yield part;
    }
  } catch (error) {
    throw isOfZlib(error) ? damagedLayer(digest, "metadata", error) : error;
  }
}

/** A stream may go on for ever and say nothing. */
async function* atMost(source: Bytes, mostBytes: number, tooMuch: () => Error): Bytes {
  let sizeBytes = 0;
  for await (const part of source) {
    sizeBytes += part.length;
    if (sizeBytes > mostBytes) throw tooMuch();
    yield part;
  }
}

function isOfZlib(error: unknown): boolean {
  return error instanceof Error && "code" in error && /^(?:ZSTD|Z)_/.test(String(error.code));
}
