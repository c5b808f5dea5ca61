import assert from "node:assert/strict";
import { readdirSync, utimesSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { type S3Peer, startS3Peer } from "#images/store/test-support/s3-peer.ts";
import type { ArtifactView, Client } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { BASE, output, refused } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";
import { waitUntil } from "../support/wait.ts";

const PREFIX = "dsec";
const DAY_MS = 86_400_000;
const OLD = ["old-0", "old-1", "old-2", "old-3"];
const textFor = (name: string) => name.padEnd(5, ".");
const REMOVALS = /^\/layers\/dsec\/(artifacts|layers|blobs)\//;

function nodeOn({ bucket, credentials, endpoint }: S3Peer): Promise<TestNode> {
  const { accessKeyId, secretAccessKey } = credentials;
  return startNode({
    words: [`--store=s3://${bucket}/${PREFIX}`, `--store-endpoint=${endpoint}`, "--store-grace=1s"],
    env: { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey },
  });
}

/** A workspace with a file that is more than what is fetched ahead of a reader: `text` again and again, 5 bytes. Pushed; equal text makes equal layers. */
async function share(client: Client, name: string, text: string): Promise<ArtifactView> {
  const body = Buffer.alloc(2_000_000, text);
  const archive = await tarOf({ name: "src/text", mode: 0o644, uid: 0, gid: 0, mtime: new Date(0), body });
  const made = await client.artifacts.import(archive, { name, kind: "workspace" });
  await client.artifacts.push(name);
  return made;
}

/** Names of all objects that begin so. */
function keysOf(peer: S3Peer, prefix: string): readonly string[] {
  const root = dirname(peer.file(`${PREFIX}/x`));
  const end = "._S3rver_object";
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((name) => name.startsWith(prefix) && name.endsWith(end))
    .map((name) => name.slice(0, -end.length));
}

/** As if what lies there had been put so long ago. */
function age(peer: S3Peer, prefix: string, byMs: number): void {
  const then = new Date(Date.now() - byMs);
  for (const key of keysOf(peer, prefix)) utimesSync(peer.file(join(PREFIX, key)), then, then);
}

async function textOf(client: Client, workspace: string): Promise<string> {
  await using sandbox = await client.sandboxes.create({ base: BASE, workspace });
  return await output(sandbox, "tail -c 5 /src/text");
}

describe("collecting a store that nodes use", { timeout: 600_000 }, () => {
  test("a collector that is killed in the middle harms nobody who pushes, pulls or runs, and the next one ends its work", async () => {
    await using peer = await startS3Peer();
    const made = new Map<string, ArtifactView>();
    {
      await using gone = await nodeOn(peer);
      await gone.client.artifacts.build({ name: BASE, suite: BASE });
      await gone.client.artifacts.push(BASE);
      for (const name of [...OLD, "kept"]) made.set(name, await share(gone.client, name, textFor(name)));
      for (const name of OLD) await gone.client.artifacts.remove(name);
    }
    // Its pins count for a month.
    age(peer, "pins/", 31 * DAY_MS);
    const layersOf = (name: string) => (made.get(name)?.layers ?? []).map((digest) => `layers/${digest.slice(7)}`);
    const isThere = (name: string) => layersOf(name).every((layer) => keysOf(peer, layer).length > 0);
    await using a = await nodeOn(peer);
    await using b = await nodeOn(peer);
    const byDigest = `old-0@${made.get("old-0")?.digest}`;
    await using running = await b.client.sandboxes.create({ base: BASE, workspace: byDigest });

    let removals = 0;
    peer.fault = ({ method, url }) => {
      if (method !== "DELETE" || !REMOVALS.test(url)) return undefined;
      removals += 1;
      return removals > 3 ? { type: "hang" } : undefined;
    };
    const collecting = a.client.nodes.collectStore({ timeoutMs: 60_000 }).catch((error: unknown) => error);
    await waitUntil("the collector is at work", 60_000, () => removals > 3);
    await share(b.client, "fresh", "fresh");
    await a.kill();
    peer.fault = () => undefined;
    assert.ok((await collecting) instanceof Error);
    await a.start();

    // What it had chosen waits for a collector that may still be at work; the mark of a dead one counts for a quarter of an hour.
    assert.ok(keysOf(peer, "chosen/").length > 0);
    const again = share(b.client, "again", textFor("old-1"));
    age(peer, "chosen/", DAY_MS);
    await again;
    const { artifacts, layers } = await a.client.nodes.collectStore();
    assert.ok(artifacts + layers > 0, "the first one had done all");
    assert.deepEqual(keysOf(peer, "chosen/"), []);
    assert.deepEqual(["kept", ...OLD].map(isThere), [true, true, true, false, false]);
    // The data comes now, on demand.
    assert.equal(await output(running, "tail -c 5 /src/text"), "old-0");
    assert.equal(await textOf(a.client, "again"), "old-1");
    assert.equal(await textOf(a.client, "fresh"), "fresh");
    assert.equal(await textOf(b.client, "kept"), "kept.");
    await refused(a.client.sandboxes.create({ base: BASE, workspace: "old-2" }), "NotFound");
    const { blobs, bytes } = await b.client.nodes.collectStore();
    assert.deepEqual([blobs, bytes], [0, 0], "a collection after the last found more");
  });
});
