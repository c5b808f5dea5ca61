import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, type Command, type Sandbox, TransportError } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BreakingProxy } from "../support/proxy.ts";
import type { ContractBackend } from "./backend.ts";

const CLI = join(import.meta.dirname, "../../bin/dsec.ts");
/** What `seq 1 N` writes: a stream in which every byte shows its place. */
const LINES = 400_000;

/** Output is kept byte for byte, bounded, and reaches every reader, whoever breaks off on the way. */
export function outputContract(backend: ContractBackend): void {
  describe(`output of a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());

    test("hang on very long input or output: 100 MB go in and come out again", async () => {
      const command = await sandbox.start(["cat"], { stdin: "pipe" });
      const sent = createHash("sha256");
      const feeding = command.pipe(noise(100_000_000, (bytes) => sent.update(bytes)));
      const { size, digest } = await digestOf(command.stdout({ hold: true }));
      await feeding;
      assert.deepEqual([size, digest], [100_000_000, sent.digest("hex")]);
    });

    test("output unbounded or merged: two streams, each with its own bytes and its own count", async () => {
      const result = await sandbox.run("seq 1 5; seq 6 9 >&2; printf '\\000\\377'; printf '\\200' >&2");
      assert.deepEqual(Buffer.from(result.stdout), Buffer.from("1\n2\n3\n4\n5\n\0\xff", "latin1"));
      assert.deepEqual(Buffer.from(result.stderr), Buffer.from("6\n7\n8\n9\n\x80", "latin1"));
    });

    test("`yes` costs the cap: its first and its last half are kept, the rest is counted", async () => {
      const own = await backend.create(node);
      const command = await own.start("yes | head -c 300000000", { outputCapBytes: 1_000_000 });
      const { stdout } = await command.wait();
      assert.deepEqual([stdout.seen, stdout.kept, stdout.truncated], [300_000_000, 1_000_000, true]);
      const folder = join(node.dataDir, "edge/output", own.id);
      const onDisk = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
      assert.ok(onDisk < 1_001_000, `${onDisk} bytes on disk`);
      const offsets: number[] = [];
      for await (const { offset, bytes } of command.output("stdout")) {
        if (offset !== (offsets.at(-1) ?? 0)) offsets.push(offset);
        offsets.push(offset + bytes.byteLength);
      }
      assert.deepEqual([offsets.includes(500_000), offsets.includes(299_500_000)], [true, true]);
      await own.remove();
    });

    test("a slow reader stalls its command, and never another one", async () => {
      const stalled = await sandbox.start(["seq", "1", "20000000"]);
      const reading = stalled.output("stdout", { hold: true });
      await reading.next();
      const { size } = await digestOf(
        (await sandbox.start(["head", "-c", "50000000", "/dev/zero"])).stdout({ hold: true }),
      );
      assert.equal(size, 50_000_000);
      assert.equal((await stalled.info()).status, undefined, "nobody reads it, so it waits");
      await reading.return(undefined);
      await stalled.signal("SIGKILL");
    });

    test("attach loses earlier output: any number of readers, from any offset, before, during and after", async () => {
      const command = await sandbox.start(`read x; seq 1 ${LINES}`, { stdin: "pipe" });
      const offsets = Array.from({ length: 20 }, (_, index) => index * 130_003);
      const live = Promise.all(offsets.map((offset) => digestOf(command.stdout({ offset, hold: true }))));
      await command.pipe("go\n");
      const expected = offsets.map((offset) => digest(numbers().subarray(offset)));
      assert.deepEqual(
        (await live).map((each) => each.digest),
        expected,
      );
      const later = await Promise.all(offsets.map((offset) => digestOf(command.stdout({ offset }))));
      assert.deepEqual(
        later.map((each) => each.digest),
        expected,
      );
    });

    test("proxies cut streams after minutes: readers and writers go on from the byte, and nobody notices", async () => {
      const random = randomOf(7);
      await using proxy = await BreakingProxy.open(node.url, () => 20_000 + (random() % 700_000));
      using client = new Client({ url: proxy.url, token: node.token, retries: 20 });
      const far = client.sandboxes.use(sandbox.id);
      const command = await retried(() => far.start(["cat"], { stdin: "pipe", idempotencyKey: "proxied" }));
      const reading = digestOf(command.stdout({ hold: true }));
      for (let at = 0; at < numbers().length; at += 100_000) await command.write(numbers().subarray(at, at + 100_000));
      await command.closeStdin();
      assert.equal((await reading).digest, digest(numbers()));
      assert.equal((await command.wait()).status.code, 0);
      assert.ok(proxy.broken > 5, `${proxy.broken} connections were broken`);
    });

    test("kill -9 of the client at any point: the command goes on, and its output is whole", async () => {
      const random = randomOf(11);
      for (let round = 0; round < 4; round++) {
        const words = ["exec", sandbox.id, "--", "seq", "1", String(LINES)];
        const child = spawn(process.execPath, [CLI, ...words], { env: { ...process.env, ...node.env } });
        child.stdin.end();
        let left = random() % 2_000_000;
        child.stdout.on("data", (bytes: Buffer) => {
          left -= bytes.length;
          if (left < 0) child.kill("SIGKILL");
        });
        await once(child, "close");
        const [newest] = await sandbox.commands({ newestFirst: true, limit: 1 });
        const command = sandbox.command(newest?.id ?? "");
        const result = await command.result();
        assert.deepEqual([result.status.code, digest(result.stdout)], [0, digest(numbers())]);
      }
    });

    test("kill -9 of the node at any point of input and output: nothing is lost or doubled, and nothing left", async () => {
      await using own = await backend.startNode();
      const { id } = await backend.create(own);
      const random = randomOf(13);
      const started = await own.client.sandboxes.use(id).start(["cat"], { stdin: "pipe" });
      const take = (): Command => own.client.sandboxes.use(id).command(started.id);
      const received: Uint8Array[] = [];
      const size = () => received.reduce((sum, bytes) => sum + bytes.byteLength, 0);
      for (let kills = 3; size() < numbers().length; kills--) {
        // Everything again from the start: what was taken is skipped.
        const command = take();
        const feeding = command.pipe(numbers()).catch((error: unknown) => error);
        const until = kills > 0 ? size() + (random() % 700_000) : numbers().length;
        try {
          for await (const bytes of command.stdout({ offset: size(), hold: true })) {
            received.push(new Uint8Array(bytes));
            if (size() >= until) break;
          }
        } catch (error) {
          assert.ok(error instanceof TransportError, `${error}`);
        }
        if (kills <= 0) continue;
        await own.kill();
        await feeding;
        await own.start();
      }
      assert.equal(digest(Buffer.concat(received)), digest(numbers()));
      const { status, stdout } = await take().wait();
      assert.deepEqual([status.code, stdout.seen, stdout.ended], [0, numbers().length, true]);
      for (const count of await own.client.nodes.resources(own.marks.edge)) {
        assert.deepEqual([count.class, count.found, count.surplus], [count.class, count.expected, []]);
      }
    });
  });
}

let written: Buffer | undefined;

/** What `seq 1 LINES` writes. */
function numbers(): Buffer {
  written ??= Buffer.from(Array.from({ length: LINES }, (_, index) => `${index + 1}\n`).join(""));
  return written;
}

function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function digestOf(
  source: AsyncIterable<Uint8Array>,
): Promise<{ readonly size: number; readonly digest: string }> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const bytes of source) {
    hash.update(bytes);
    size += bytes.byteLength;
  }
  return { size, digest: hash.digest("hex") };
}

/** Bytes that no compression and no line ending would leave alone, the same in every run. */
async function* noise(size: number, tell: (bytes: Uint8Array) => void): AsyncGenerator<Uint8Array> {
  const random = randomOf(3);
  const block = Buffer.alloc(1_000_000);
  for (let at = 0; at < block.length; at += 4) block.writeUInt32LE(random(), at);
  for (let sent = 0; sent < size; sent += block.length) {
    block.writeUInt32LE(sent, 0);
    tell(block);
    yield Buffer.from(block);
  }
}

/** Whole numbers below 2^32 that are the same for the same seed: xorshift. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/** A start under a key may be sent until it gets through. */
async function retried<T>(act: () => Promise<T>): Promise<T> {
  for (let attempts = 10; ; attempts--) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof TransportError) || attempts === 0) throw error;
    }
  }
}
