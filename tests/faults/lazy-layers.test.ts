import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { processStartTicks } from "#host/sys/process.ts";
import { startS3Peer } from "#images/store/test-support/s3-peer.ts";
import { dsec } from "../support/cli.ts";
import { FILES, holdStore, makeLazy, nodeOptions, sumOf, WORK } from "../support/lazy-data.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { waitUntil } from "../support/wait.ts";

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

async function killFiller(node: TestNode): Promise<void> {
  const { pid, startTicks } = JSON.parse(readFileSync(join(node.runDir, "lazy.json"), "utf8"));
  process.kill(pid, "SIGKILL");
  while (processStartTicks(pid) === startTicks) await immediate();
}
