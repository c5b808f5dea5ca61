import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { processStartTicks } from "#host/sys/process.ts";
import { sha256Hex } from "#images/digest.ts";
import { type S3Peer, startS3Peer } from "#images/store/test-support/s3-peer.ts";
import type { Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { BASE, output } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";
import { waitUntil } from "../support/wait.ts";

const FILES = 12;
const FILE_BYTES = 2 ** 20;
const WORK = { base: BASE, workspace: "work" };

test("sandboxes on lazy layers outlive their node with a reader waiting, and fail with the reason when its filler died, too", async () => {
  await using peer = await startS3Peer();
  await using node = await startNode(nodeOptions(peer, "--fetch-timeout=10m"));
  const sums = await makeLazy(node, peer);
  const sandbox = await node.client.sandboxes.create(WORK);
  assert.equal(await sumOf(sandbox, 0), sums[0]);
  const [before] = await node.client.artifacts.layers("work");
  assert.equal(before?.state, "lazy");
  assert.ok(before.presentBytes > 0 && before.presentBytes < before.sizeBytes, `${before.presentBytes} bytes`);

  const asked = holdStore(peer);
  const reader = await sandbox.start(["/bin/busybox", "sha256sum", "/data/9"]);
  await asked;
  await node.kill();
  await node.start();
  peer.fault = () => undefined;
  const again = node.client.sandboxes.use(sandbox.id);
  assert.equal((await again.command(reader.id).result()).stdoutText.split(" ")[0], sums[9]);
  for (let file = 0; file < 6; file++) assert.equal(await sumOf(again, file), sums[file]);

  await node.kill();
  await killFiller(node);
  await node.start();
  const info = await node.client.sandboxes.info(sandbox.id);
  assert.equal(info.state, "failed");
  assert.match(info.reason ?? "", /was not served for a while/);
  await node.client.sandboxes.remove(sandbox.id);
  await using fresh = await node.client.sandboxes.create(WORK);
  for (let file = 0; file < FILES; file++) assert.equal(await sumOf(fresh, file), sums[file]);
});

test("a store that gives nothing is told by status with the reads that failed, and the same reads succeed when it is back", async () => {
  await using peer = await startS3Peer();
  await using node = await startNode(nodeOptions(peer, "--fetch-timeout=10m"));
  const sums = await makeLazy(node, peer);
  await using sandbox = await node.client.sandboxes.create(WORK);
  const onDemand = async () => (await node.client.nodes.store())?.onDemand ?? assert.fail("nothing is on demand");
  // What the command itself needs is here from now on.
  assert.equal(await sumOf(sandbox, 0), sums[0]);
  assert.equal((await onDemand()).failedReads, 0);
  // What no retry would mend ends a read at once.
  peer.fault = () => ({ type: "status", status: 403 });
  const failed = await sandbox.run(["/bin/busybox", "sha256sum", "/data/9"]);
  assert.match(failed.stderrText, /Input\/output error/);
  await waitUntil("the failed read is told", 60_000, async () => (await onDemand()).failedReads > 0);
  const { trouble, lastFailure, cachedBytes, cacheLimitBytes } = await onDemand();
  assert.ok(trouble !== undefined && lastFailure !== undefined && cachedBytes < cacheLimitBytes);
  assert.match((await dsec(node, ["status"])).stdout, /cannot be fetched since .*\n {2}reads that failed: [1-9]/);
  peer.fault = () => undefined;
  assert.equal(await sumOf(sandbox, 9), sums[9]);
  await waitUntil("the store is well again", 60_000, async () => (await onDemand()).trouble === undefined);
});

/** A node whose layers come from the peer. */
function nodeOptions({ bucket, endpoint, credentials }: S3Peer, timeout: string) {
  return {
    words: [`--store=s3://${bucket}/dsec`, `--store-endpoint=${endpoint}`, timeout],
    env: { AWS_ACCESS_KEY_ID: credentials.accessKeyId, AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey },
  };
}

/** Makes artifacts whose data lies in the store alone. Resolves with the SHA-256 of each file. */
async function makeLazy(node: TestNode, peer: S3Peer): Promise<readonly string[]> {
  await node.client.artifacts.build({ name: BASE, suite: BASE });
  const entries = Array.from({ length: FILES }, (_, file) => {
    return { name: `data/${file}`, mode: 0o644, uid: 0, gid: 0, body: bodyOf(file) };
  });
  await node.client.artifacts.import(await tarOf(...entries), { name: "work", kind: "workspace" });
  for (const name of [BASE, "work"]) await node.client.artifacts.push(name);
  await node.stop();
  const put = peer.seen.filter(({ method }) => method === "PUT").map(({ url }) => url.split("/").at(-1) ?? "");
  assert.ok(put.some((name) => name.startsWith("frames-")) && !put.includes("data"), "data is put in frames");
  const blobs = join(node.dataDir, "images/blobs");
  for (const hex of readdirSync(blobs)) rmSync(join(blobs, hex), { recursive: true });
  await node.start();
  return entries.map(({ body }) => sha256Hex(body));
}

/** From now on the store does not answer; resolves when it was asked. */
function holdStore(peer: S3Peer): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  peer.fault = () => {
    resolve();
    return { type: "hang" };
  };
  return promise;
}

/** Differs all over, so that no piece is like another. */
function bodyOf(file: number): Buffer {
  const body = Buffer.alloc(FILE_BYTES);
  for (let at = 0; at < FILE_BYTES; at += 4) body.writeUInt32LE((file * FILE_BYTES + at * 2_654_435_761) % 2 ** 32, at);
  return body;
}

async function sumOf(sandbox: Sandbox, file: number): Promise<string> {
  return (await output(sandbox, ["/bin/busybox", "sha256sum", `/data/${file}`])).split(" ")[0] ?? "";
}

async function killFiller(node: TestNode): Promise<void> {
  const { pid, startTicks } = JSON.parse(readFileSync(join(node.runDir, "lazy.json"), "utf8"));
  process.kill(pid, "SIGKILL");
  while (processStartTicks(pid) === startTicks) await immediate();
}
