import { SandboxError } from "#core/errors.ts";
import { sha256Hex } from "../digest.ts";
import { storeUnavailable } from "./object-store.ts";
import type { S3Client, S3Request } from "./s3-client.ts";
import { completionXml, elementOf } from "./s3-xml.ts";

/** S3 takes so many parts of an object. */
const MAX_PARTS = 10_000;
const MAX_ANSWER_BYTES = 2 ** 16;

/** Where parts go, and for what. */
type Target = Pick<S3Request, "key" | "doing">;

/** An object on its way in. */
export interface PartsOptions {
  /** All of it, checked. */
  readonly content: AsyncIterable<Uint8Array>;
  readonly partBytes: number;
  /** Whether the object is there: asked when nobody knows whether a completion arrived. */
  isThere(): Promise<boolean>;
  readonly signal: AbortSignal;
}

/** The size of the parts of an object: what is usual, or more for objects that would have too many. */
export function partBytesOf(sizeBytes: number, usualBytes: number): number {
  return Math.max(usualBytes, Math.ceil(sizeBytes / MAX_PARTS));
}

/** Puts an object in parts, one after the other, of which one is in memory. What fails leaves no parts behind. */
export async function putInParts(client: S3Client, target: Target, options: PartsOptions): Promise<void> {
  const { signal } = options;
  const begun = await exchange(client, { ...target, method: "POST", query: { uploads: "" } }, signal);
  const uploadId = elementOf(begun.xml, "UploadId");
  if (uploadId === undefined) throw storeUnavailable("S3", `${target.doing}: the answer has no upload id`);
  try {
    const etags: string[] = [];
    for await (const part of inParts(options.content, options.partBytes)) {
      const query = { partNumber: String(etags.length + 1), uploadId };
      const body = { sizeBytes: part.length, sha256: sha256Hex(part), open: () => once(part) };
      const { etag } = await exchange(client, { ...target, method: "PUT", query, body }, signal);
      if (!/^"?[0-9A-Za-z-]+"?$/.test(etag)) throw storeUnavailable("S3", `${target.doing}: a part has no ETag`);
      etags.push(etag);
    }
    await complete(client, target, { uploadId, etags, ...options });
  } catch (error) {
    // The caller may have given up: the parts go all the same, as far as the store lets them.
    await exchange(client, { ...target, method: "DELETE", query: { uploadId } }, new AbortController().signal).catch(
      () => undefined,
    );
    throw error;
  }
}

async function complete(
  client: S3Client,
  target: Target,
  { uploadId, etags, isThere, signal }: PartsOptions & { readonly uploadId: string; readonly etags: string[] },
): Promise<void> {
  const xml = Buffer.from(completionXml(etags));
  const body = { sizeBytes: xml.length, sha256: sha256Hex(xml), open: () => once(xml) };
  try {
    await exchange(client, { ...target, method: "POST", query: { uploadId }, body }, signal);
  } catch (error) {
    // An attempt whose answer was lost may have done it: the upload is gone then, and the object there.
    const isGone = error instanceof SandboxError && error.kind === "NotFound";
    if (!isGone || !(await isThere())) throw error;
  }
}

async function exchange(client: S3Client, request: S3Request, signal: AbortSignal) {
  return await client.persist(signal, async () => {
    using progress = client.progress(signal);
    const response = await client.send(request, progress);
    const xml = await client.text(request.doing, response, progress, MAX_ANSWER_BYTES);
    // Completions say that they failed after they said that they succeeded.
    if (xml.includes("<Error>")) throw storeUnavailable("S3", request.doing, new Error(elementOf(xml, "Code")));
    return { xml, etag: String(response.headers.etag) };
  });
}

async function* inParts(source: AsyncIterable<Uint8Array>, partBytes: number): AsyncIterable<Buffer> {
  let part = Buffer.allocUnsafeSlow(partBytes);
  let filled = 0;
  for await (const piece of source) {
    for (let taken = 0; taken < piece.length; ) {
      const length = Math.min(piece.length - taken, partBytes - filled);
      part.set(piece.subarray(taken, taken + length), filled);
      taken += length;
      filled += length;
      if (filled < partBytes) continue;
      yield part;
      part = Buffer.allocUnsafeSlow(partBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield part.subarray(0, filled);
}

async function* once(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}
