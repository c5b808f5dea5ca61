import { isObjectKey, type ObjectEntry } from "./object-store.ts";

/**
 * What is read of S3's XML: a handful of elements whose values are plain. Keys that a store of ours has need no escapes, and other
 * keys of the bucket are skipped; so a parser of all XML, with its own faults, would only add to what a hostile server can reach.
 */
export interface ListingPage {
  readonly entries: readonly ObjectEntry[];
  /** For the next page; `undefined` on the last. */
  readonly next: string | undefined;
}

/** `undefined` when the text is no listing. `root` is what all keys begin with, and is taken off. */
export function parseListing(xml: string, root: string): ListingPage | undefined {
  if (!xml.includes("<ListBucketResult")) return undefined;
  const entries = [...xml.matchAll(/<Contents>(.*?)<\/Contents>/gs)].flatMap(([, text = ""]) => {
    const key = elementOf(text, "Key") ?? "";
    const entry = {
      key: key.slice(root.length),
      sizeBytes: Number(elementOf(text, "Size")),
      modifiedAtMs: Date.parse(elementOf(text, "LastModified") ?? ""),
    };
    const isGood = Number.isSafeInteger(entry.sizeBytes) && Number.isFinite(entry.modifiedAtMs);
    return key.startsWith(root) && isObjectKey(entry.key) && isGood ? [entry] : [];
  });
  const isLast = elementOf(xml, "IsTruncated") !== "true";
  return { entries, next: isLast ? undefined : elementOf(xml, "NextContinuationToken") };
}

/** The text of the first element of that name. */
export function elementOf(xml: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
  return text?.replace(/&(lt|gt|quot|apos|amp|#34|#39|#13);/g, (_, entity: string) => ENTITIES[entity] ?? "");
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: "<",
  gt: ">",
  quot: '"',
  "#34": '"',
  apos: "'",
  "#39": "'",
  amp: "&",
  "#13": "\r",
};

/** What completes an upload in parts. ETags are quoted hexadecimal digits, maybe with a dash. */
export function completionXml(etags: readonly string[]): string {
  const parts = etags.map((etag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${etag}</ETag></Part>`);
  return `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
}
