import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { ManualClock } from "#core/clock.ts";
import { readObject } from "./object-store.ts";
import { objectStoreContract, type StoreRig, SUITE_PAGE_KEYS, SUITE_PART_BYTES } from "./object-store-suite.ts";
import { type S3Options, s3Store } from "./s3.ts";
import { bytesOf, contentOf } from "./test-support/content.ts";
import { type Fault, type S3Peer, type Seen, startS3Peer } from "./test-support/s3-peer.ts";

const live = () => AbortSignal.timeout(60_000);
const PREFIX = "team/dsec/";

function storeAt(peer: S3Peer, options: Partial<S3Options> = {}) {
  return s3Store({
    bucket: peer.bucket,
    prefix: PREFIX,
    region: "us-east-1",
    endpoint: peer.endpoint,
    credentials: async () => peer.credentials,
    firstRetryMs: 1,
    pageKeys: SUITE_PAGE_KEYS,
    partBytes: SUITE_PART_BYTES,
    ...options,
  });
}

async function makeRig(): Promise<StoreRig> {
  const peer = await startS3Peer();
  return {
    open: () => storeAt(peer),
    file: (key) => peer.file(PREFIX + key),
    leftovers: async () => (existsSync(peer.uploads) ? readdirSync(peer.uploads) : []),
    putAndDie: (key, sizeBytes) => dieIn(peer, key, sizeBytes),
    [Symbol.asyncDispose]: () => peer[Symbol.asyncDispose](),
  };
}

async function dieIn(peer: S3Peer, key: string, sizeBytes: number): Promise<void> {
  const { bucket, endpoint, credentials } = peer;
  const options = { bucket, prefix: PREFIX, region: "us-east-1", endpoint, partBytes: SUITE_PART_BYTES };
  const script = `
    import { s3Store } from "${import.meta.dirname}/s3.ts";
    async function* open() {
      yield Buffer.alloc(${sizeBytes / 2});
      yield Buffer.alloc(1);
      process.kill(process.pid, "SIGKILL");
    }
    const store = s3Store({ ...${JSON.stringify(options)}, credentials: async () => (${JSON.stringify(credentials)}) });
    const content = { sizeBytes: ${sizeBytes}, sha256: "0".repeat(64), open };
    await store.put(${JSON.stringify(key)}, content, AbortSignal.timeout(60_000));`;
  const ended = new Promise<string | null>((resolve) => {
    const child = execFile(process.execPath, ["--input-type=module", "-e", script], () => undefined);
    child.on("exit", (_code, signal) => resolve(signal));
  });
  assert.equal(await ended, "SIGKILL");
}

objectStoreContract("S3", makeRig);

/** The fault for the first `times` requests that `which` names. */
function first(times: number, fault: Fault, which: (seen: Seen) => boolean = () => true) {
  let left = times;
  return (seen: Seen) => (which(seen) && left-- > 0 ? fault : undefined);
}

describe("a store in S3", { concurrency: 4 }, () => {
  test("outlives a server that fails now and then, on every call", async () => {
    await using peer = await startS3Peer();
    await using store = storeAt(peer);
    const broken: Fault[] = [
      { type: "status", status: 500 },
      { type: "status", status: 503, code: "SlowDown" },
      { type: "status", status: 429 },
      { type: "lost" },
    ];
    for (const fault of broken) {
      const calls = [
        () => store.put("a", contentOf("bytes"), live()),
        () => store.put("big", contentOf(Buffer.alloc(2 * SUITE_PART_BYTES), 2 ** 20), live()),
        () => store.head("a", live()),
        () => readObject(store, "a", 10, live()),
        () => Array.fromAsync(store.list("", live())),
        () => store.remove("a", live()),
      ];
      for (const call of calls) {
        peer.fault = first(2, fault);
        await call();
      }
    }
    assert.equal((await store.head("big", live()))?.sizeBytes, 2 * SUITE_PART_BYTES);
  });

  test("gives up on one that goes on failing, after a few attempts", async () => {
    await using peer = await startS3Peer();
    await using store = storeAt(peer);
    peer.fault = () => ({ type: "status", status: 500, code: "InternalError" });
    await assert.rejects(readObject(store, "a", 10, live()), { kind: "Unavailable" });
    assert.equal(peer.seen.length, 5);
    await assert.rejects(store.put("big", contentOf(Buffer.alloc(2 * SUITE_PART_BYTES)), live()), {
      kind: "Unavailable",
    });
    await assert.rejects(store.probe(live()), { kind: "Unavailable" });
  });

  test("that nobody listens for is Unavailable", async () => {
    const peer = await startS3Peer();
    await using store = storeAt(peer);
    await peer[Symbol.asyncDispose]();
    await assert.rejects(store.head("a", live()), { kind: "Unavailable" });
  });

  test("goes on where an answer broke off", async () => {
    await using peer = await startS3Peer();
    await using store = storeAt(peer);
    const bytes = randomBytes(600_000);
    await store.put("a", contentOf(bytes), live());
    peer.seen.length = 0;
    peer.fault = first(2, { type: "cut", afterBytes: 200_000 });
    assert.ok(bytes.equals(await bytesOf(store.get("a", undefined, live()))));
    const [begun, ...resumed] = peer.seen.map((seen) => seen.range);
    assert.equal(begun, undefined);
    assert.equal(resumed.length, 2);
    for (const range of resumed) assert.match(range ?? "", /^bytes=[1-9]\d*-599999$/);
  });

  test("refuses an answer that is shorter than the object, whatever it says of its length", async () => {
    await using peer = await startS3Peer();
    await using store = storeAt(peer);
    await store.put("a", contentOf(randomBytes(10_000)), live());
    peer.fault = () => ({ type: "short", bytes: 100 });
    await assert.rejects(bytesOf(store.get("a", { offset: 0, lengthBytes: 10_000 }, live())), { kind: "Unavailable" });
  });

  test("waits for a slow answer as long as something comes, and no longer", async () => {
    await using peer = await startS3Peer();
    const clock = new ManualClock();
    await using store = storeAt(peer, { clock, stallMs: 1000, firstRetryMs: 1 });
    const bytes = randomBytes(10_000);
    await store.put("a", contentOf(bytes), live());
    const events = new EventEmitter();
    // Each piece comes shortly before the patience ends, after the one before it was read.
    const step = async () => {
      if (clock.now() > begunMs) await once(events, "read");
      clock.advance(900);
    };
    const begunMs = clock.now();
    peer.fault = () => ({ type: "slow", pieceBytes: 1000, step });
    const read: Uint8Array[] = [];
    for await (const piece of store.get("a", undefined, live())) {
      read.push(piece);
      setImmediate(() => events.emit("read"));
    }
    assert.ok(bytes.equals(Buffer.concat(read)));
    assert.ok(clock.now() - begunMs > 5000);
  });

  test("does not wait for an answer that never comes", async () => {
    await using peer = await startS3Peer();
    await using store = storeAt(peer, { stallMs: 20 });
    peer.fault = () => ({ type: "hang" });
    await assert.rejects(bytesOf(store.get("a", undefined, live())), { kind: "Unavailable" });
    await assert.rejects(store.put("a", contentOf("x"), live()), { kind: "Unavailable" });
  });

  test("says what to do when it is refused, at once", async () => {
    await using peer = await startS3Peer();
    await using wrong = storeAt(peer, { credentials: async () => ({ ...peer.credentials, secretAccessKey: "other" }) });
    await assert.rejects(wrong.put("a", contentOf("x"), live()), { kind: "PermissionDenied" });
    await assert.rejects(readObject(wrong, "a", 10, live()), { kind: "PermissionDenied" });
    await assert.rejects(wrong.head("a", live()), { kind: "PermissionDenied" });
    assert.equal(peer.seen.length, 3);
    await using nowhere = storeAt(peer, { bucket: "no-such-bucket" });
    await assert.rejects(nowhere.probe(live()), { kind: "FailedPrecondition" });
    await assert.rejects(nowhere.put("a", contentOf("x"), live()), { kind: "FailedPrecondition" });
    await using store = storeAt(peer);
    peer.fault = () => ({ type: "status", status: 307, location: "http://169.254.169.254/" });
    await assert.rejects(store.probe(live()), { kind: "FailedPrecondition" });
    peer.fault = () => ({ type: "status", status: 507 });
    await assert.rejects(store.put("a", contentOf("x"), live()), { kind: "StorageFull" });
  });

  test("tells no secret in anything it throws", async () => {
    await using peer = await startS3Peer();
    const secrets = {
      accessKeyId: "AKIDPUBLIC",
      secretAccessKey: "very-secret-key",
      sessionToken: "very-secret-token",
    };
    await using store = storeAt(peer, { credentials: async () => secrets });
    const faults: (Fault | undefined)[] = [
      undefined,
      { type: "status", status: 500 },
      { type: "status", status: 400, code: "very-secret-key" },
      { type: "cut", afterBytes: 0 },
    ];
    for (const fault of faults) {
      peer.fault = () => fault;
      const error = await store.put("a", contentOf("x"), live()).catch((thrown: unknown) => thrown);
      assert.ok(error instanceof Error);
      assert.doesNotMatch(inspect(error, { depth: 20, showHidden: true }), /very-secret/);
    }
    assert.doesNotMatch(store.name, /AKID|secret/);
  });
});
