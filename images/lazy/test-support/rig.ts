import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { openHelperCgroup } from "#host/cgroup/helpers.ts";
import type { Mechanism } from "#host/lazy/requests.ts";
import { descriptorText, PIECE_BYTES } from "../../blobs/descriptor.ts";
import { type BlobDigest, hexOf, sha256Hex } from "../../digest.ts";
import { directoryStore } from "../../store/directory.ts";
import { frameOf, framesKey, tableKey, tableText } from "../../store/frames.ts";
import { blobOf } from "../../store/test-support/blobs.ts";
import type { LazyReport } from "../lazy-blobs.ts";
import { type LazyNode, type LazyNodeOptions, openLazyNode } from "../lazy-node.ts";

const MIB = 2 ** 20;

/** A store with blobs, and a node that has them on demand. Disposing ends all of it. */
export class LazyRig implements AsyncDisposable {
  readonly dir = mkdtempSync(join(tmpdir(), "dsec-lazy-"));
  readonly storeDir = join(this.dir, "store");
  readonly cacheDir = join(this.dir, "cache");
  readonly runDir = join(this.dir, "run");
  readonly lines: string[] = [];
  readonly #name = `t${randomBytes(6).toString("hex")}`;
  readonly #mechanism: Mechanism;
  #changed = Promise.withResolvers<void>();
  #node: LazyNode | undefined;

  constructor(mechanism: Mechanism) {
    this.#mechanism = mechanism;
    for (const dir of [this.storeDir, this.runDir]) mkdirSync(dir);
  }

  get node(): LazyNode {
    assert.ok(this.#node);
    return this.#node;
  }

  /** As a node begins; `adopted` is mounted by the one before. */
  async open(options: Partial<LazyNodeOptions> & { readonly adopted?: readonly BlobDigest[] } = {}): Promise<LazyNode> {
    this.#node = await openLazyNode({
      words: [join(import.meta.dirname, "../../../bin/filler.ts")],
      runDir: this.runDir,
      cacheDir: this.cacheDir,
      cacheBytes: 1_024 * MIB,
      deadlineMs: 120_000,
      store: { place: { store: this.storeDir }, credentials: undefined },
      cgroup: openHelperCgroup(this.#name, "filler"),
      mechanism: this.#mechanism,
      log: (line) => this.#note(line),
      ...options,
    });
    this.#node.adopt(options.adopted ?? []);
    return this.#node;
  }

  /** As a node does that is told to keep its sandboxes, or that dies: its filler goes on. */
  async abandon(): Promise<void> {
    await this.#node?.[Symbol.asyncDispose]();
    this.#node = undefined;
  }

  /** Puts a blob of so many pieces into the store, plain; its bytes follow from `seed`. */
  async blob(seed: string, pieces: number): Promise<{ readonly digest: BlobDigest; readonly data: Buffer }> {
    const data = Buffer.concat(Array.from({ length: pieces }, (_, piece) => pieceOf(seed, piece)));
    const { digest, descriptor } = blobOf(data);
    await this.put(`blobs/${hexOf(digest)}/data`, data);
    await this.put(`blobs/${hexOf(digest)}/blob.json`, Buffer.from(descriptorText(descriptor)));
    return { digest, data };
  }

  /** The same in frames. Resolves with their lengths and the key of their object, too. */
  async framedBlob(seed: string, pieces: number) {
    const data = Buffer.concat(Array.from({ length: pieces }, (_, piece) => pieceOf(seed, piece)));
    const { digest, descriptor } = blobOf(data);
    const frames = await Promise.all(descriptor.pieces.map((_, piece) => frameOf(pieceOf(seed, piece))));
    const bytes = Buffer.concat(frames);
    const table = { sha256: sha256Hex(bytes), sizeBytes: data.length, frames: frames.map((frame) => frame.length) };
    await this.put(framesKey(digest, table), bytes);
    await this.put(tableKey(digest), Buffer.from(tableText(table)));
    await this.put(`blobs/${hexOf(digest)}/blob.json`, Buffer.from(descriptorText(descriptor)));
    return { digest, data, table, bytes };
  }

  /** Puts an object into the store, in place of what is there. */
  async put(key: string, bytes: Buffer): Promise<void> {
    const content = { sizeBytes: bytes.length, sha256: sha256Hex(bytes), open: () => oneOf(bytes) };
    await using store = directoryStore(this.storeDir);
    await store.put(key, content, AbortSignal.timeout(60_000));
  }

  async report(digest: BlobDigest): Promise<LazyReport> {
    const [report] = await this.node.report([digest]);
    assert.ok(report);
    return report;
  }

  /** Resolves when a line of the log matches. */
  async logged(pattern: RegExp): Promise<void> {
    while (!this.lines.some((line) => pattern.test(line))) {
      this.#changed = Promise.withResolvers<void>();
      await this.#changed.promise;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const node = this.#node ?? (await this.open());
    await node.end();
    rmSync(this.dir, { recursive: true });
  }

  #note(line: string): void {
    this.lines.push(line);
    this.#changed.resolve();
  }
}

/** The SHA-256 of a range of pieces, as a process of its own reads it: a filler's own reads are not asked about. */
export async function readPieces(path: string, first: number, end: number): Promise<string> {
  const script = 'set -o pipefail; dd if="$1" bs="$2" skip="$3" count="$4" status=none | sha256sum';
  const words = ["-c", script, "-", path, PIECE_BYTES, first, end - first].map(String);
  const reader = spawn("bash", words, { stdio: ["ignore", "pipe", "pipe"] });
  const [out, err, [code]] = await Promise.all([text(reader.stdout), text(reader.stderr), once(reader, "close")]);
  if (code !== 0) throw new Error(err);
  return out.slice(0, 64);
}

/** What `readPieces` must give. */
export function piecesHash(data: Buffer, first: number, end: number): string {
  return sha256Hex(data.subarray(first * PIECE_BYTES, end * PIECE_BYTES));
}

function pieceOf(seed: string, piece: number): Buffer {
  return Buffer.alloc(PIECE_BYTES, createHash("sha256").update(`${seed} ${piece}`).digest());
}

async function* oneOf(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield bytes;
}
