import { Readable } from "node:stream";
import { AwsV4Signer } from "aws4fetch";
import { Agent, type Dispatcher } from "undici";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { S3CredentialsSource } from "./credentials.ts";
import { damagedObject, noObject, objectStoreFull, storeUnavailable } from "./object-store.ts";
import { Progress } from "./progress.ts";
import { elementOf } from "./s3-xml.ts";

/** A bucket, and how to talk to it. */
export interface S3Place {
  readonly name: string;
  /** Where the bucket is; ends with a slash. */
  readonly base: string;
  /** What keys of the store begin with in the bucket. */
  readonly prefix: string;
  readonly region: string;
  readonly credentials: S3CredentialsSource;
}

/** How long a client is patient. */
export interface S3Patience {
  readonly clock: Clock;
  readonly stallMs: number;
  /** Before the second attempt; doubled for each further one. */
  readonly firstRetryMs: number;
}

/** One request. */
export interface S3Request {
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  /** For people. */
  readonly doing: string;
  /** Of the store; empty for the bucket itself. */
  readonly key: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: { readonly sizeBytes: number; readonly sha256: string; open(): AsyncIterable<Uint8Array> };
}

/** SHA-256 of nothing. */
const EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ATTEMPTS = 5;
const MAX_RETRY_MS = 5_000;
/** Sockets of one store: what the node's fetcher and a few pushes have under way. */
const CONNECTIONS = 32;
const MAX_ERROR_BYTES = 2 ** 16;
/** Answers that are no fault of the request: another attempt may do better. */
const PASSING = new Set(["BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout"]);
const MISPLACED = new Set(["AuthorizationHeaderMalformed", "NoSuchBucket", "InvalidBucketName", "PermanentRedirect"]);

/** Signs requests, sends them, and turns what goes wrong into typed errors. Never follows a redirect. */
export class S3Client implements AsyncDisposable {
  readonly #place: S3Place;
  readonly #patience: S3Patience;
  readonly #agent: Agent;
  /** By day and secret: the signer's own, which takes three quarters of the work of a signature. */
  readonly #signingKeys = new Map<string, ArrayBuffer>();

  constructor(place: S3Place, patience: S3Patience) {
    this.#place = place;
    this.#patience = patience;
    // Our own limit on progress stands for those of the agent.
    this.#agent = new Agent({ connections: CONNECTIONS, headersTimeout: 0, bodyTimeout: 0, connect: { timeout: 0 } });
  }

  /** Runs `work` again while it fails with `Unavailable`, up to a bound, waiting longer each time. */
  async persist<T>(signal: AbortSignal, work: (attempt: number) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work(attempt);
      } catch (error) {
        await this.pauseAfter(error, attempt, signal);
      }
    }
  }

  /** Waits before the attempt after number `attempt`; rejects with `error` when there is to be none. */
  async pauseAfter(error: unknown, attempt: number, signal: AbortSignal): Promise<void> {
    if (!(error instanceof SandboxError) || error.kind !== "Unavailable" || attempt >= ATTEMPTS) throw error;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const abort = () => reject(signal.reason);
    using _ = this.#patience.clock.after(
      Math.min(this.#patience.firstRetryMs * 2 ** (attempt - 1), MAX_RETRY_MS),
      resolve,
    );
    signal.addEventListener("abort", abort, { once: true });
    try {
      signal.throwIfAborted();
      await promise;
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  /** Watches one attempt. */
  progress(signal: AbortSignal): Progress {
    return new Progress(this.#patience.clock, this.#patience.stallMs, signal);
  }

  /** One attempt. Resolves to an answer of success, whose body must be read with `pieces` or `text`. */
  async send(request: S3Request, progress: Progress): Promise<Dispatcher.ResponseData> {
    const upload = request.body === undefined ? undefined : new Upload(request.body.open(), progress);
    const response = await this.watch(request.doing, progress, async () => {
      const { url, headers } = await this.#sign(request);
      return await this.#agent.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method: request.method,
        headers,
        body: upload === undefined ? null : Readable.from(upload.pieces()),
        signal: progress.signal,
      });
    }).catch((error: unknown) => {
      throw upload?.failure === undefined ? error : upload.failure.reason;
    });
    if (response.statusCode >= 200 && response.statusCode < 300) return response;
    const xml = await this.text(request.doing, response, progress, MAX_ERROR_BYTES).catch(() => "");
    const code = /^[A-Za-z0-9]{1,64}$/.exec(elementOf(xml, "Code") ?? "")?.[0];
    throw this.#refusal(request, response.statusCode, code);
  }

  /** The body of an answer. Whatever ends the reading ends the request. */
  async *pieces(doing: string, { body }: Dispatcher.ResponseData, progress: Progress): AsyncIterable<Uint8Array> {
    // Ending it early is no fault.
    body.on("error", () => undefined);
    const reading = body[Symbol.asyncIterator]();
    try {
      for (;;) {
        const { done, value } = await this.watch(doing, progress, () => reading.next());
        if (done) return;
        yield value;
      }
    } finally {
      body.destroy();
    }
  }

  /** A whole body that is small; more than `maxBytes` is `Unavailable`: no such server is S3. */
  async text(doing: string, response: Dispatcher.ResponseData, progress: Progress, maxBytes: number): Promise<string> {
    const pieces: Uint8Array[] = [];
    let sizeBytes = 0;
    for await (const piece of this.pieces(doing, response, progress)) {
      sizeBytes += piece.length;
      if (sizeBytes > maxBytes) throw storeUnavailable(this.#place.name, doing);
      pieces.push(piece);
    }
    return Buffer.concat(pieces).toString();
  }

  /** Waits for a part of an exchange; what fails in it is `Unavailable`, or the caller's own reason. */
  async watch<T>(doing: string, progress: Progress, work: () => Promise<T>): Promise<T> {
    try {
      return await progress.of(work());
    } catch (error) {
      if (error instanceof SandboxError) throw error;
      if (progress.signal.aborted && !progress.isStalled) throw progress.signal.reason;
      throw storeUnavailable(this.#place.name, doing, error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }

  async #sign({ method, key, query, headers, body }: S3Request) {
    const url = new URL(key === "" ? this.#place.base : this.#place.base + this.#place.prefix + key);
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value);
    const signed = await new AwsV4Signer({
      ...(await this.#place.credentials()),
      method,
      url: url.href,
      headers: { ...headers, "x-amz-content-sha256": body?.sha256 ?? EMPTY_SHA256 },
      service: "s3",
      region: this.#place.region,
      cache: this.#signingKeys,
    } as ConstructorParameters<typeof AwsV4Signer>[0]).sign();
    const length = body === undefined ? {} : { "content-length": String(body.sizeBytes) };
    return { url: signed.url, headers: { ...Object.fromEntries(signed.headers), ...length } };
  }

  #refusal({ key, doing }: S3Request, status: number, code: string | undefined): SandboxError {
    const { name } = this.#place;
    const cause = new Error(`status ${status}${code === undefined ? "" : `, ${code}`}`);
    if (status === 507) return objectStoreFull(name, cause);
    if (status >= 500 || status === 429 || status === 408 || PASSING.has(code ?? "")) {
      return storeUnavailable(name, doing, cause);
    }
    if (MISPLACED.has(code ?? "") || (status >= 300 && status < 400)) {
      return new SandboxError("FailedPrecondition", `${name} is not there (${code ?? status})`, {
        cause,
        hint: "make the bucket, or correct the bucket, endpoint and region of the store",
      });
    }
    if (status === 404) return noObject(key);
    if (status === 416) return damagedObject(key, "it ends before the range that was asked for");
    return new SandboxError("PermissionDenied", `${name} refuses ${doing} (${code ?? status})`, {
      cause,
      hint: "check the credentials of the store, what they may do with the bucket, and the clock of this machine",
    });
  }
}

/** A body on its way out: progress as it goes, and what its source threw. */
class Upload {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #progress: Progress;
  failure: { readonly reason: unknown } | undefined;

  constructor(source: AsyncIterable<Uint8Array>, progress: Progress) {
    this.#source = source;
    this.#progress = progress;
  }

  async *pieces(): AsyncIterable<Uint8Array> {
    try {
      for await (const piece of this.#source) {
        this.#progress.made();
        yield piece;
      }
    } catch (reason) {
      this.failure = { reason };
      throw reason;
    }
  }
}
