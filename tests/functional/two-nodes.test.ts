import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { startS3Peer } from "#images/store/test-support/s3-peer.ts";
import { type Client, DsecError } from "#sdk";
import { dsec } from "../support/cli.ts";
import { startNode } from "../support/node.ts";
import { BASE, output, refused } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";

/** A workspace of one file. */
async function importText(client: Client, name: string, text: string) {
  const archive = await tarOf({ name: "src/text", mode: 0o644, uid: 0, gid: 0, body: Buffer.from(text) });
  return await client.artifacts.import(archive, { name, kind: "workspace", labels: { text } });
}

describe("two nodes with one store", () => {
  test("run what either of them made, by name and by digest, and a sandbox keeps what it was made of", async () => {
    await using peer = await startS3Peer();
    const { accessKeyId, secretAccessKey } = peer.credentials;
    const options = {
      words: [`--store=s3://${peer.bucket}/dsec`, `--store-endpoint=${peer.endpoint}`],
      env: { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey },
    };
    await using a = await startNode(options);
    await using b = await startNode(options);
    await a.client.artifacts.build({ name: BASE, suite: BASE });
    const first = await importText(a.client, "work", "one");
    for (const name of [BASE, "work"]) assert.equal((await a.client.artifacts.push(name)).published, true);

    await using sandbox = await b.client.sandboxes.create({ base: BASE, workspace: "work" });
    assert.equal(await output(sandbox, "cat /src/text"), "one");
    const { artifacts } = await sandbox.info();
    assert.deepEqual(artifacts?.[1], { reference: "work:latest", digest: first.digest });
    assert.deepEqual((await b.client.artifacts.info("work")).labels, { text: "one" });

    const second = await importText(a.client, "work", "two");
    await a.client.artifacts.push("work");
    // The other node goes on with what the name meant, until it is told to look again.
    assert.equal((await b.client.artifacts.info("work")).digest, first.digest);
    const pulled = await dsec(b, ["image", "pull", "work"]);
    assert.match(pulled.stdout, new RegExp(`^work:latest ${second.digest}`));
    await using newer = await b.client.sandboxes.create({ base: BASE, workspace: "work" });
    assert.equal(await output(newer, "cat /src/text"), "two");
    assert.equal(await output(sandbox, "cat /src/text"), "one");
    await using pinned = await b.client.sandboxes.create({ base: BASE, workspace: `work@${first.digest}` });
    assert.equal(await output(pinned, "cat /src/text"), "one");

    peer.fault = () => ({ type: "status", status: 500 });
    await refused(b.client.sandboxes.create({ base: "unknown" }), "Unavailable");
    await using local = await b.client.sandboxes.create({ base: BASE, workspace: "work" });
    assert.equal(await output(local, "cat /src/text"), "two");
    const other = await importText(a.client, "other", "three");
    assert.equal(other.published, false);
    peer.fault = () => undefined;
    await refused(b.client.sandboxes.create({ base: "unknown" }), "NotFound");
    await a.client.artifacts.push("other");
    await using third = await b.client.sandboxes.create({ base: BASE, workspace: "other" });
    assert.equal(await output(third, "cat /src/text"), "three");

    await b.client.artifacts.remove("other");
    await refused(b.client.artifacts.pull("other"), "NotFound");
  });

  test("restore what the other one packed, link after link, and a fork that has no room goes by a snapshot", async () => {
    const root = mkdtempSync(join(tmpdir(), "dsec-shared-"));
    try {
      await using a = await startNode({ words: [`--store=${root}`, "--max-sandboxes=1"] });
      await using b = await startNode({ words: [`--store=${root}`] });
      await a.client.artifacts.build({ name: BASE, suite: BASE });
      await a.client.artifacts.push(BASE);
      await using parent = await a.client.sandboxes.create({ base: BASE });
      await output(
        parent,
        "dd if=/dev/urandom of=/big bs=1M count=3 2>/dev/null; echo one >/file; chmod 4750 /file; touch /gone",
      );
      const { forks } = await parent.fork({ count: 1 });
      const kinds = forks.map((made) =>
        "error" in made && made.error instanceof DsecError ? made.error.kind : "ready",
      );
      assert.deepEqual(kinds, ["NodeFull"]);
      await parent.packDiff({ name: "first" });
      await a.client.artifacts.push("first");
      await using elsewhere = await b.client.sandboxes.create({ base: "first" });
      const told = "sha256sum /big; stat -c '%a %u' /file; cat /file; ls -d /gone 2>/dev/null || echo none";
      assert.equal(await output(elsewhere, told), await output(parent, told));
      await output(elsewhere, "echo two >>/file; rm /gone");
      await elsewhere.packDiff({ name: "second" });
      await b.client.artifacts.push("second");
      await parent.remove();
      await using back = await a.client.sandboxes.create({ base: "second" });
      assert.equal(await output(back, told), await output(elsewhere, told));
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });

  test("refuse what was damaged in the store, and publish after a restart what a killed node had not", async () => {
    const root = mkdtempSync(join(tmpdir(), "dsec-shared-"));
    try {
      await using a = await startNode({ words: [`--store=${root}`] });
      await using b = await startNode({ words: [`--store=${root}`] });
      rmSync(root, { recursive: true });
      await a.client.artifacts.build({ name: BASE, suite: BASE });
      const work = await importText(a.client, "work", "one");
      await a.kill();
      mkdirSync(root);
      await a.start();
      const layer = work.layers[0]?.slice("sha256:".length) ?? "";
      const metadata = join(root, "layers", layer, "metadata.erofs");
      await a.client.artifacts.push(BASE);
      await a.client.artifacts.push("work");
      const whole = readFileSync(metadata);
      writeFileSync(metadata, Buffer.alloc(whole.length));
      await refused(b.client.sandboxes.create({ base: BASE, workspace: "work" }), "Internal", /metadata/);
      writeFileSync(metadata, whole);
      await using sandbox = await b.client.sandboxes.create({ base: BASE, workspace: "work" });
      assert.equal(await output(sandbox, "cat /src/text"), "one");
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });
});
