import { type Clock, systemClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { checkedContent } from "./checked-content.ts";
import type { S3CredentialsSource } from "./credentials.ts";
import {
  type ByteRange,
  checkKey,
  damagedObject,
  type ObjectContent,
  type ObjectEntry,
  type ObjectInfo,
  type ObjectStore,
  STALL_MS,
  storeUnavailable,
} from "./object-store.ts";
import type { Progress } from "./progress.ts";
import { S3Client } from "./s3-client.ts";
import { partBytesOf, putInParts } from "./s3-parts.ts";
import { parseListing } from "./s3-xml.ts";

/** A part of a bucket, and how to talk to it. */
export interface S3Options {
  readonly bucket: string;
  /** What all keys begin with; empty, or ends with a slash. */
  readonly prefix: string;
  readonly region: string;
  /** Of a server other than Amazon's: `https://minio.example.org`. */
  readonly endpoint: string | undefined;
  readonly credentials: S3CredentialsSource;
  readonly clock?: Clock;
  readonly stallMs?: number;
  readonly firstRetryMs?: number;
  /** Objects of a page. */
  readonly pageKeys?: number;
  /** Larger objects are put in parts of this size. */
  readonly partBytes?: number;
}

const FIRST_RETRY_MS = 200;
const PAGE_KEYS = 1000;
/** An attempt that brought so much of an object begins the count of failures anew. */
const RESUME_BYTES = 2 ** 20;
const PART_BYTES = 16 * 2 ** 20;
/** A page of 1,000 keys has less than half of it. */
const MAX_LISTING_BYTES = 2 ** 23;

/** A store in a bucket of S3, or of a server that speaks the same. */
export function s3Store(options: S3Options): ObjectStore {
  return new S3Objects(options);
}

class S3Objects implements ObjectStore {
  readonly name: string;
  readonly #client: S3Client;
  readonly #prefix: string;
  readonly #pageKeys: number;
  readonly #partBytes: number;

  constructor(options: S3Options) {
    const { bucket, prefix, region, endpoint, credentials } = options;
    this.name = `s3://${bucket}/${prefix}${endpoint === undefined ? "" : ` at ${endpoint}`}`;
    this.#prefix = prefix;
    this.#pageKeys = options.pageKeys ?? PAGE_KEYS;
    this.#partBytes = options.partBytes ?? PART_BYTES;
    this.#client = new S3Client(
      { name: this.name, base: baseOf(bucket, region, endpoint), prefix, region, credentials },
      {
        clock: options.clock ?? systemClock,
        stallMs: options.stallMs ?? STALL_MS,
        firstRetryMs: options.firstRetryMs ?? FIRST_RETRY_MS,
      },
    );
  }

  async *get(key: string, range: ByteRange | undefined, signal: AbortSignal): AsyncIterable<Uint8Array> {
    const reading = { at: range?.offset ?? 0, end: range === undefined ? undefined : range.offset + range.lengthBytes };
    for (let failures = 0, failedAt = 0; reading.at !== reading.end; ) {
      using progress = this.#client.progress(signal);
      try {
        for await (const piece of this.#rest(key, reading, progress)) {
          reading.at += piece.length;
          yield piece;
        }
        if (reading.at !== reading.end) throw storeUnavailable(this.name, `reading ${key}: the answer was cut short`);
      } catch (error) {
        // A server that gives a little each time is no better than one that gives nothing.
        failures = reading.at - failedAt >= RESUME_BYTES ? 1 : failures + 1;
        failedAt = reading.at;
        await this.#client.pauseAfter(error, failures, signal);
      }
    }
  }

  async put(key: string, content: ObjectContent, signal: AbortSignal): Promise<void> {
    const target = { key: checked(key), doing: `writing ${key}` };
    const partBytes = partBytesOf(content.sizeBytes, this.#partBytes);
    const { sizeBytes, sha256 } = content;
    const open = () => checkedContent(key, content);
    if (sizeBytes > partBytes) {
      const isThere = async () => (await this.head(key, signal))?.sizeBytes === sizeBytes;
      return await putInParts(this.#client, target, { content: open(), partBytes, isThere, signal });
    }
    await this.#client.persist(signal, async () => {
      using progress = this.#client.progress(signal);
      const body = { sizeBytes, sha256, open };
      const response = await this.#client.send({ ...target, method: "PUT", body }, progress);
      await this.#client.text(target.doing, response, progress, MAX_LISTING_BYTES);
    });
  }

  async head(key: string, signal: AbortSignal): Promise<ObjectInfo | undefined> {
    const doing = `looking for ${key}`;
    return await this.#client.persist(signal, async () => {
      using progress = this.#client.progress(signal);
      try {
        const { headers, body } = await this.#client.send({ method: "HEAD", key: checked(key), doing }, progress);
        await body.dump();
        const info = {
          sizeBytes: Number(headers["content-length"]),
          modifiedAtMs: Date.parse(String(headers["last-modified"])),
        };
        if (Number.isSafeInteger(info.sizeBytes) && Number.isFinite(info.modifiedAtMs)) return info;
        throw storeUnavailable(this.name, doing);
      } catch (error) {
        if (error instanceof SandboxError && error.kind === "NotFound") return undefined;
        throw error;
      }
    });
  }

  async *list(prefix: string, signal: AbortSignal): AsyncIterable<ObjectEntry> {
    for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
      const page = await this.#page(prefix, this.#pageKeys, token, signal);
      yield* page.entries;
      token = page.next;
    }
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    const doing = `removing ${key}`;
    await this.#client.persist(signal, async () => {
      using progress = this.#client.progress(signal);
      try {
        const { body } = await this.#client.send({ method: "DELETE", key: checked(key), doing }, progress);
        await body.dump();
      } catch (error) {
        if (!(error instanceof SandboxError && error.kind === "NotFound")) throw error;
      }
    });
  }

  path(): undefined {
    return undefined;
  }

  async settlingMs(): Promise<number> {
    return 0;
  }

  async probe(signal: AbortSignal): Promise<void> {
    await this.#page("", 1, undefined, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client[Symbol.asyncDispose]();
  }

  /** What is missing of an object, in one attempt; finds out where it ends. */
  async *#rest(
    key: string,
    reading: { at: number; end: number | undefined },
    progress: Progress,
  ): AsyncIterable<Uint8Array> {
    const doing = `reading ${key}`;
    const isPart = reading.at > 0 || reading.end !== undefined;
    const range = `bytes=${reading.at}-${reading.end === undefined ? "" : reading.end - 1}`;
    const request = { method: "GET", key: checked(key), doing, headers: isPart ? { range } : {} } as const;
    const response = await this.#client.send(request, progress);
    const { headers, statusCode } = response;
    const [, first, last] = /^bytes (\d+)-(\d+)\//.exec(String(headers["content-range"])) ?? [];
    const from = isPart ? Number(first) : 0;
    const end = isPart ? Number(last) + 1 : Number(headers["content-length"]);
    if (statusCode !== (isPart ? 206 : 200) || from !== reading.at || !Number.isSafeInteger(end)) {
      response.body.on("error", () => undefined).destroy();
      throw storeUnavailable(this.name, `${doing}: the answer is for something else`);
    }
    if (reading.end !== undefined && end < reading.end) {
      response.body.on("error", () => undefined).destroy();
      throw damagedObject(key, `it ends after ${end} bytes`);
    }
    reading.end ??= end;
    yield* this.#client.pieces(doing, response, progress);
  }

  async #page(prefix: string, keys: number, token: string | undefined, signal: AbortSignal) {
    const doing = `listing ${prefix}`;
    const query = {
      "list-type": "2",
      "max-keys": String(keys),
      prefix: this.#prefix + prefix,
      ...(token === undefined ? {} : { "continuation-token": token }),
    };
    return await this.#client.persist(signal, async () => {
      using progress = this.#client.progress(signal);
      const response = await this.#client.send({ method: "GET", key: "", doing, query }, progress);
      const page = parseListing(await this.#client.text(doing, response, progress, MAX_LISTING_BYTES), this.#prefix);
      if (page === undefined) throw storeUnavailable(this.name, `${doing}: the answer is no listing`);
      return page;
    });
  }
}

function checked(key: string): string {
  checkKey(key);
  return key;
}

/** Buckets with dots have no host of their own: no certificate would fit. */
function baseOf(bucket: string, region: string, endpoint: string | undefined): string {
  if (endpoint !== undefined) return `${endpoint.replace(/\/+$/, "")}/${bucket}/`;
  const host = `s3.${region}.amazonaws.com`;
  return bucket.includes(".") ? `https://${host}/${bucket}/` : `https://${bucket}.${host}/`;
}
