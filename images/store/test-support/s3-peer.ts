import crypto, { hash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout } from "node:timers/promises";
import { isSigned } from "./signature.ts";

/** What goes wrong with one request. */
export type Fault =
  | { readonly type: "status"; readonly status: number; readonly code?: string; readonly location?: string }
  /** The answer ends after so many bytes of its body, with the connection. */
  | { readonly type: "cut"; readonly afterBytes: number }
  /** The answer says that it is that long. */
  | { readonly type: "short"; readonly bytes: number }
  /** The request is done and the answer lost. */
  | { readonly type: "lost" }
  /** No answer, ever. */
  | { readonly type: "hang" }
  /** The body comes in pieces of so many bytes, each when `step` says so. */
  | { readonly type: "slow"; readonly pieceBytes: number; step(): Promise<void> };

/** A request as it was seen. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly range: string | undefined;
}

/** An S3 server on a free port, with one bucket; everything about it can go wrong. */
export interface S3Peer extends AsyncDisposable {
  readonly endpoint: string;
  readonly bucket: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  /** Where the server keeps the bytes of a key. */
  file(key: string): string;
  /** Uploads in parts that nobody completed. */
  readonly uploads: string;
  readonly seen: Seen[];
  /** Asked for every request; `undefined`: nothing goes wrong. */
  fault: (seen: Seen) => Fault | undefined;
}

/** What is used of a package without types of its own. */
type S3rver = new (options: {
  readonly address: string;
  readonly port: number;
  readonly silent: boolean;
  readonly directory: string;
  readonly vhostBuckets: boolean;
  readonly configureBuckets: readonly { readonly name: string }[];
}) => { run(): Promise<{ readonly port: number }>; close(): Promise<void> };

const S3rver: S3rver = createRequire(import.meta.url)("s3rver");

const BUCKET = "layers";
const CREDENTIALS = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };

/**
 * s3rver behind a gate. The gate adds what S3 promises and s3rver lacks: signatures are checked, an object is there only when its
 * whole body came and has the hash that the request was signed with, and an upload in parts can be aborted.
 */
export async function startS3Peer(): Promise<S3Peer> {
  provideDes();
  const directory = mkdtempSync(join(tmpdir(), "dsec-s3-"));
  const options = { address: "127.0.0.1", port: 0, silent: true, directory, vhostBuckets: false };
  const server = new S3rver({ ...options, configureBuckets: [{ name: BUCKET }] });
  const { port } = await server.run();
  const peer = {
    bucket: BUCKET,
    credentials: CREDENTIALS,
    file: (key: string) => join(directory, BUCKET, `${key}._S3rver_object`),
    uploads: join(directory, BUCKET, "._S3rver_uploads"),
    seen: [] as Seen[],
    fault: (): Fault | undefined => undefined,
  };
  const underWay = new Set<Promise<void>>();
  const objects = new Objects();
  const gate = createServer(async (incoming, response) => {
    const seen = { method: incoming.method ?? "", url: incoming.url ?? "", range: incoming.headers.range };
    // What removes parts comes after those that are on their way: s3rver would keep them.
    if (seen.method === "DELETE") await Promise.all(underWay);
    const arrived = () => void opened.seen.push(seen);
    // A client that leaves in the middle is part of what is tested.
    const uploads = opened.uploads;
    const passing = pass(incoming, response, { port, objects, uploads, fault: () => opened.fault(seen), arrived })
      .catch(() => void response.destroy())
      .finally(() => underWay.delete(passing));
    underWay.add(passing);
  });
  gate.listen(0, "127.0.0.1");
  await once(gate, "listening");
  const { port: gatePort } = gate.address() as AddressInfo;
  const opened: S3Peer = Object.assign(peer, {
    endpoint: `http://127.0.0.1:${gatePort}`,
    async [Symbol.asyncDispose]() {
      await close(gate);
      await server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  });
  return opened;
}

async function close(server: Server): Promise<void> {
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
}

/** s3rver makes the tokens of its pages with DES, which OpenSSL 3 has only as one of its three rounds. */
function provideDes(): void {
  const { createCipheriv, createDecipheriv } = crypto;
  const tripled = (key: Buffer) => Buffer.concat([key, key, key]);
  Object.assign(crypto, {
    createCipheriv: (name: string, key: Buffer, iv: Buffer) =>
      name === "des" ? createCipheriv("des-ede3-cbc", tripled(key), iv) : createCipheriv(name, key, iv),
    createDecipheriv: (name: string, key: Buffer, iv: Buffer) =>
      name === "des" ? createDecipheriv("des-ede3-cbc", tripled(key), iv) : createDecipheriv(name, key, iv),
  });
}

/** An object that is put is another or none for those who ask meanwhile, or list: s3rver writes over the files that it reads from. */
class Objects {
  readonly #lists = new Set<Promise<void>>();
  readonly #writing = new Map<string, Promise<void>>();
  readonly #reading = new Map<string, Set<Promise<void>>>();

  /** Runs `work` when nobody writes the object at `path`, and a PUT when nobody reads it either. */
  async use(method: string | undefined, path: string, work: () => Promise<void>): Promise<void> {
    if (/^\/[^/]+\/?$/.test(path)) return await this.#list(work);
    for (let writing = this.#writing.get(path); writing !== undefined; writing = this.#writing.get(path)) await writing;
    const readers = this.#reading.get(path) ?? new Set();
    this.#reading.set(path, readers);
    const before = method === "PUT" ? Promise.all([...readers, ...this.#lists]) : undefined;
    const working = (async () => {
      await before;
      await work();
    })();
    const ended = working
      .catch(() => undefined)
      .finally(() => {
        readers.delete(ended);
        if (this.#writing.get(path) === ended) this.#writing.delete(path);
        if (readers.size === 0 && this.#reading.get(path) === readers) this.#reading.delete(path);
      });
    if (method === "PUT") this.#writing.set(path, ended);
    else readers.add(ended);
    await working;
  }

  /** Looks into files of every object: comes after what is being put, and before what is put later. */
  async #list(work: () => Promise<void>): Promise<void> {
    const earlier = [...this.#writing.values()];
    const working = Promise.all(earlier).then(work);
    const ended = working.catch(() => undefined).finally(() => this.#lists.delete(ended));
    this.#lists.add(ended);
    await working;
  }
}

interface Passing {
  readonly port: number;
  readonly objects: Objects;
  readonly uploads: string;
  fault(): Fault | undefined;
  arrived(): void;
}

async function pass(incoming: IncomingMessage, response: ServerResponse, passing: Passing): Promise<void> {
  const body = Buffer.concat(await Array.fromAsync(incoming));
  passing.arrived();
  const wrong = passing.fault();
  if (wrong?.type === "hang") return;
  if (wrong?.type === "status") return refuse(response, wrong);
  if (!isSigned(incoming, CREDENTIALS.secretAccessKey)) {
    return refuse(response, { status: 403, code: "SignatureDoesNotMatch" });
  }
  const isWhole = body.length === Number(incoming.headers["content-length"] ?? 0);
  const isRight = hash("sha256", body) === incoming.headers["x-amz-content-sha256"];
  if (!isWhole || !isRight) return refuse(response, { status: 400, code: "XAmzContentSHA256Mismatch" });
  const { method, url = "", headers } = incoming;
  const upload = /[?&]uploadId=([0-9a-f]+)/.exec(url)?.[1];
  if (method === "DELETE" && upload !== undefined) {
    rmSync(join(passing.uploads, upload), { recursive: true, force: true });
    return refuse(response, { status: 204 });
  }
  const ask = () => answered(response, { port: passing.port, method, url, headers, body, wrong });
  // One that comes piece by piece waits for the test.
  await (wrong?.type === "slow" ? ask() : passing.objects.use(method, url.replace(/\?.*/, ""), ask));
}

interface Asked {
  readonly port: number;
  readonly method: string | undefined;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly wrong: Fault | undefined;
}

async function answered(response: ServerResponse, { port, method, url, headers, body, wrong }: Asked): Promise<void> {
  const inner = request({ host: "127.0.0.1", port, method, path: url, headers });
  response.on("close", () => inner.destroy());
  inner.end(body);
  const [answer] = (await once(inner, "response")) as [IncomingMessage];
  if (wrong?.type === "lost") {
    await Array.fromAsync(answer);
    return void response.destroy();
  }
  const length = wrong?.type === "short" ? { "content-length": wrong.bytes } : {};
  response.writeHead(answer.statusCode ?? 500, { ...answer.headers, ...length });
  await pipeline(answer, (source) => spoilt(source, wrong), response);
}

/** The body of an answer, with what goes wrong with it. */
async function* spoilt(source: AsyncIterable<Buffer>, wrong: Fault | undefined): AsyncIterable<Buffer> {
  let sentBytes = 0;
  const limitBytes = wrong?.type === "cut" ? wrong.afterBytes : wrong?.type === "short" ? wrong.bytes : Infinity;
  for await (const whole of source) {
    const sizeBytes = wrong?.type === "slow" ? wrong.pieceBytes : whole.length;
    for (let at = 0; at < whole.length && sentBytes < limitBytes; at += sizeBytes) {
      if (wrong?.type === "slow") await wrong.step();
      const piece = whole.subarray(at, Math.min(at + sizeBytes, at + limitBytes - sentBytes));
      sentBytes += piece.length;
      yield piece;
    }
    // What was written goes out before the connection ends.
    if (wrong?.type === "cut" && sentBytes >= limitBytes) await setTimeout(50);
    if (wrong?.type === "cut" && sentBytes >= limitBytes) throw new Error("cut");
    if (wrong?.type === "short" && sentBytes >= limitBytes) return;
  }
}

function refuse(
  response: ServerResponse,
  { status, code, location }: { status: number; code?: string; location?: string },
) {
  response.writeHead(status, location === undefined ? {} : { location });
  response.end(code === undefined ? "" : `<?xml version="1.0"?><Error><Code>${code}</Code></Error>`);
}
