import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { importBytes, temporaryStore } from "#images/test-support/fixtures.ts";
import type { Client } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { BASE, output, startNodeWithBase } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";
import { waitUntil } from "../support/wait.ts";

/** More than the node holds back before it writes. */
const BODY_BYTES = 24 * 2 ** 20;

/** An archive whose sender stops in the middle until it is let go. */
function halting(bytes: Uint8Array) {
  const gate = Promise.withResolvers<void>();
  const half = Promise.withResolvers<void>();
  async function* source(): AsyncGenerator<Uint8Array> {
    const middle = bytes.length >> 1;
    for (let at = 0; at < middle; at += 2 ** 18) yield bytes.subarray(at, Math.min(middle, at + 2 ** 18));
    half.resolve();
    await gate.promise;
    yield bytes.subarray(middle);
  }
  return { source: source(), half: half.promise, go: gate.resolve };
}

const send = (client: Client, name: string, source: Uint8Array | AsyncIterable<Uint8Array>) =>
  client.artifacts.import(source, { name, kind: "workspace" });

/** Bytes that imports under way have written. */
function unfinishedBytes(node: TestNode): number {
  const temp = join(node.dataDir, "images/tmp");
  const names = readdirSync(temp, { recursive: true, encoding: "utf8" });
  return names.reduce((sum, name) => sum + (statSync(join(temp, name), { throwIfNoEntry: false })?.size ?? 0), 0);
}

function stored(node: TestNode): readonly (readonly string[])[] {
  return ["layers", "blobs", "tmp"].map((folder) => readdirSync(join(node.dataDir, "images", folder)).sort());
}

describe("an import", () => {
  test("in the middle of which its node is killed leaves nothing, and gives the same layer when it is repeated", async () => {
    const tar = await tarOf({ name: "big", mode: 0o644, uid: 0, gid: 0, body: randomBytes(BODY_BYTES) });
    using reference = await temporaryStore();
    const expected = await importBytes(reference.store, Buffer.from(tar));
    await using node = await startNode();
    const before = stored(node);
    for (let attempt = 0; attempt < 2; attempt++) {
      const { source, half, go } = halting(tar);
      const outcome = send(node.client, "big", source).then(() => "imported", String);
      await half;
      await waitUntil("data is on the disk", 60_000, () => unfinishedBytes(node) > BODY_BYTES / 4);
      await node.kill();
      go();
      assert.notEqual(await outcome, "imported");
      await node.start();
      assert.deepEqual(stored(node), before);
      await assert.rejects(node.client.artifacts.info("big"), { kind: "NotFound" });
    }
    assert.deepEqual((await send(node.client, "big", tar)).layers, expected.layers);
  });

  test("of what another one brings at the same time gives one layer, stored once", async () => {
    const tar = await tarOf({ name: "same", mode: 0o644, uid: 0, gid: 0, body: randomBytes(BODY_BYTES) });
    await using node = await startNode();
    const both = [halting(tar), halting(tar)];
    const imported = both.map(({ source }, index) => send(node.client, `same-${index}`, source));
    await Promise.all(both.map(({ half }) => half));
    for (const { go } of both) go();
    const [first, second] = await Promise.all(imported);
    assert.deepEqual(first?.layers, second?.layers);
    const [layers, blobs, unfinished] = stored(node);
    assert.deepEqual([layers?.length, blobs?.length, unfinished], [1, 1, []]);
  });

  test("that moves a tag while sandboxes are made of it: each is wholly of what it says", async () => {
    await using node = await startNodeWithBase();
    const texts = new Map<string, string>();
    const move = async (text: string): Promise<void> => {
      const tar = await tarOf({ name: "src/text", mode: 0o644, uid: 0, gid: 0, body: Buffer.from(text) });
      texts.set((await send(node.client, "work", tar)).digest, text);
    };
    await move("0");
    const moving = (async () => {
      for (let version = 1; version <= 20; version++) await move(String(version));
    })();
    const made = Array.from({ length: 20 }, async () => {
      await using sandbox = await node.client.sandboxes.create({ base: BASE, workspace: "work" });
      const text = await output(sandbox, "cat /src/text");
      return { text, digest: (await sandbox.info()).artifacts?.[1]?.digest ?? "" };
    });
    const found = await Promise.all(made);
    await moving;
    for (const { text, digest } of found) assert.equal(texts.get(digest), text);
  });
});
