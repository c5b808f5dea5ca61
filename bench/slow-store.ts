import { once } from "node:events";
import { createReadStream, type Stats, statSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import type { NodeOptions } from "#tests/support/node.ts";

/** How far away a store is: what all its answers together may carry, and how late each begins. */
export interface Distance {
  readonly bytesPerS: number;
  readonly delayMs: number;
}

/** A store that is as slow as one in another building. */
export interface SlowStore extends AsyncDisposable {
  /** How a node uses it. */
  readonly nodeOptions: Required<Pick<NodeOptions, "words" | "env">>;
  /** Of bodies that were sent. */
  readonly sentBytes: number;
}

const PLACE = "/layers/dsec/";
const READ_BYTES = 2 ** 17;
/** A timer that ends late costs none of the rate: so much may be made up for. */
const CATCH_UP_MS = 20;

/**
 * Serves a store in a directory as S3 does, at a distance. What nodes put is kept in memory, for them alone: the directory stays as it
 * is. Signatures are not looked at.
 */
export async function startSlowStore(root: string, distance: Distance): Promise<SlowStore> {
  const link = new Link(distance);
  const written = new Map<string, Buffer>();
  const server = createServer((request, response) => {
    answer(request, response, { root, link, written }).catch(() => response.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    nodeOptions: {
      words: ["--store=s3://layers/dsec", `--store-endpoint=http://127.0.0.1:${port}`],
      env: { AWS_ACCESS_KEY_ID: "bench", AWS_SECRET_ACCESS_KEY: "bench" },
    },
    get sentBytes() {
      return link.sentBytes;
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** One way for all answers. */
class Link {
  readonly #distance: Distance;
  #freeAtMs = 0;
  sentBytes = 0;

  constructor(distance: Distance) {
    this.#distance = distance;
  }

  async begin(): Promise<void> {
    await delay(this.#distance.delayMs);
  }

  async *paced(source: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
    for await (const piece of source) {
      const now = performance.now();
      const sendMs = (piece.length / this.#distance.bytesPerS) * 1_000;
      this.#freeAtMs = Math.max(this.#freeAtMs, now - CATCH_UP_MS) + sendMs;
      if (this.#freeAtMs > now) await delay(this.#freeAtMs - now);
      this.sentBytes += piece.length;
      yield piece;
    }
  }
}

interface Served {
  readonly root: string;
  readonly link: Link;
  readonly written: Map<string, Buffer>;
}

async function answer(request: IncomingMessage, response: ServerResponse, served: Served): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://store");
  const { method } = request;
  if (method === "PUT") served.written.set(pathname, await buffer(request));
  await served.link.begin();
  if (method === "PUT") return void response.end();
  if (searchParams.has("list-type")) return void response.end(listingOf(served, searchParams.get("prefix") ?? ""));
  const found = served.written.get(pathname) ?? statOf(served.root, pathname);
  if (method === "DELETE" || found === undefined) return void response.writeHead(method === "DELETE" ? 204 : 404).end();
  const sizeBytes = Buffer.isBuffer(found) ? found.length : found.size;
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "") ?? [];
  const start = Number(first ?? 0);
  const end = Math.min(sizeBytes, last ? Number(last) + 1 : sizeBytes);
  const range = first === undefined ? {} : { "content-range": `bytes ${start}-${end - 1}/${sizeBytes}` };
  const modified = new Date(0).toUTCString();
  response.writeHead(first === undefined ? 200 : 206, {
    "content-length": end - start,
    "last-modified": modified,
    ...range,
  });
  if (method === "HEAD" || end <= start) return void response.end();
  const source = Buffer.isBuffer(found)
    ? Readable.from([found.subarray(start, end)])
    : createReadStream(join(served.root, keyOf(pathname)), { start, end: end - 1, highWaterMark: READ_BYTES });
  await pipeline(source, (pieces: AsyncIterable<Buffer>) => served.link.paced(pieces), response);
}

/** Of what was put alone: what nodes look for in a listing, they have put. */
function listingOf({ written }: Served, prefix: string): string {
  const keys = [...written.keys()].map((path) => path.slice("/layers/".length)).filter((key) => key.startsWith(prefix));
  const found = keys.map((key) => {
    const sizeBytes = written.get(`/layers/${key}`)?.length ?? 0;
    return `<Contents><Key>${key}</Key><Size>${sizeBytes}</Size><LastModified>1970-01-01T00:00:00Z</LastModified></Contents>`;
  });
  return `<ListBucketResult>${found.join("")}<IsTruncated>false</IsTruncated></ListBucketResult>`;
}

function statOf(root: string, pathname: string): Stats | undefined {
  const found = statSync(join(root, keyOf(pathname)), { throwIfNoEntry: false });
  return found?.isFile() ? found : undefined;
}

/** Paths of URLs have no `..` left. */
function keyOf(pathname: string): string {
  return pathname.startsWith(PLACE) ? decodeURIComponent(pathname.slice(PLACE.length)) : "";
}
