import { type BlobDescriptor, digestOfBlob, PIECE_BYTES } from "../../blobs/descriptor.ts";
import { type BlobDigest, sha256Hex } from "../../digest.ts";

/** What a blob with these bytes is; nothing is known of its chunks. */
export function blobOf(data: Buffer): { readonly digest: BlobDigest; readonly descriptor: BlobDescriptor } {
  const pieces: string[] = [];
  for (let at = 0; at < data.length; at += PIECE_BYTES) pieces.push(sha256Hex(data.subarray(at, at + PIECE_BYTES)));
  const sizeBytes = data.length;
  const descriptor = { version: 1, sizeBytes, pieceBytes: PIECE_BYTES, pieces, chunksSha256: sha256Hex("") } as const;
  return { digest: digestOfBlob(descriptor), descriptor };
}
