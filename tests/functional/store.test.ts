import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { startS3Peer } from "#images/store/test-support/s3-peer.ts";
import { dsec } from "../support/cli.ts";
import { findProcesses } from "../support/marks.ts";
import { startNode } from "../support/node.ts";
import { BASE, create, output, startNodeWithBase } from "../support/sandbox.ts";

describe("a node with a store", () => {
  test("says which one, and whether it answers", async () => {
    const root = mkdtempSync(join(tmpdir(), "dsec-store-"));
    try {
      await using node = await startNode({ words: [`--store=${root}`] });
      assert.deepEqual(await node.client.nodes.store(), { name: `directory ${root}` });
      assert.match((await dsec(node, ["status"])).stdout, new RegExp(`store directory ${root}: answers`));
      rmSync(root, { recursive: true });
      assert.equal((await node.client.nodes.store())?.problem?.kind, "Unavailable");
      assert.match((await dsec(node, ["status"])).stdout, /is not there.*mount/);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });

  test("keeps its credentials from everything it starts, from sandboxes and from what it says", async () => {
    await using peer = await startS3Peer();
    const secrets = { AWS_ACCESS_KEY_ID: "S3RVER", AWS_SECRET_ACCESS_KEY: "never-to-be-seen" };
    await using node = await startNodeWithBase({
      words: [`--store=s3://${peer.bucket}/dsec`, `--store-endpoint=${peer.endpoint}`, "--log-level=trace"],
      env: secrets,
    });
    const store = await node.client.nodes.store();
    assert.equal(store?.problem?.kind, "PermissionDenied");
    assert.doesNotMatch(JSON.stringify(store), /never-to-be-seen/);
    await using sandbox = await create(node);
    assert.doesNotMatch(
      await output(sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>&1 || true"),
      /never-to-be-seen/,
    );
    const pids = findProcesses(node.marks);
    assert.ok(pids.length > 1);
    for (const pid of pids) {
      assert.doesNotMatch(readFileSync(`/proc/${pid}/cmdline`, "latin1"), /never-to-be-seen/);
      // What a process was started with stays readable there, for root of this machine alone.
      if (pid === node.pid) continue;
      assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, "latin1"), /never-to-be-seen/);
    }
    assert.doesNotMatch(node.log, /never-to-be-seen/);
    assert.equal((await node.client.artifacts.info(BASE)).kind, "base");
  });

  test("does not start with a store that can be none", async () => {
    await assert.rejects(startNode({ words: ["--store=layers"] }), /is no store/);
    await assert.rejects(startNode({ words: ["--store=s3://bucket"] }), /needs credentials/);
  });
});
