import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Client, type DsecError } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { create, output, startNodeWithBase } from "../support/sandbox.ts";

/** What a pack goes by, in its order, as the folders of its node show it. */
const POINTS: readonly (readonly [string, (node: TestNode, layersBefore: number) => boolean])[] = [
  ["takes its first copy", (node) => copies(node).length > 0],
  ["holds the sandbox still", (node) => copies(node).length > 1],
  ["writes data", (node) => unfinishedBytes(node) > 0],
  ["has added the layer", (node, before) => layers(node).length > before],
];
const CHANGE =
  "dd if=/dev/urandom of=/big bs=1M count=48 2>/dev/null; mkdir -p /many; for n in $(seq 100); do echo $n >/many/$n; done";
const SUM = "sha256sum /big; cat /many/* | sha256sum";

const copies = (node: TestNode) => readdirSync(join(node.runDir, "volume/.copies"));
const layers = (node: TestNode) => readdirSync(join(node.dataDir, "images/layers"));

function unfinishedBytes(node: TestNode): number {
  const temp = join(node.dataDir, "images/tmp");
  const names = readdirSync(temp, { recursive: true, encoding: "utf8" });
  const sizes = names.map((name) => statSync(join(temp, name), { throwIfNoEntry: false }));
  return sizes.reduce((sum, stats) => sum + (stats?.isFile() === true ? stats.size : 0), 0);
}

describe("a node that is killed while a pack", { timeout: 600_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  for (const [name, isReached] of POINTS) {
    test(`${name} lets the sandbox go on, keeps nothing half done, and packs again`, async () => {
      const { id } = await create(node);
      await output(node.client.sandboxes.use(id), CHANGE);
      const artifact = `packed-${randomBytes(4).toString("hex")}`;
      const idempotencyKey = `key ${artifact}`;
      const layersBefore = layers(node).length;
      const isPacked = await killed(node, id, { name: artifact, idempotencyKey }, () => isReached(node, layersBefore));
      await node.start();
      assert.deepEqual([copies(node), unfinishedBytes(node)], [[], 0]);
      const sandbox = node.client.sandboxes.use(id);
      const expected = await output(sandbox, SUM);
      const found = await node.client.artifacts.info(artifact).catch(({ kind }: DsecError) => ({ kind }));
      // It may have been named, and nobody told.
      assert.ok((isPacked ? ["snapshot"] : ["snapshot", "NotFound"]).includes(found.kind), found.kind);
      const packed = await sandbox.packDiff({ name: artifact, idempotencyKey });
      assert.equal(packed.entries, 102);
      assert.equal(await output(await create(node, { base: artifact }), SUM), expected);
      for (const { surplus } of await node.client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
    });
  }
});

/** Packs, and kills the node at the point, or when the pack is over before it was seen there. True when the pack has answered. */
async function killed(
  node: TestNode,
  id: string,
  options: { readonly name: string; readonly idempotencyKey: string },
  isReached: () => boolean,
): Promise<boolean> {
  using client = new Client({ url: node.url, token: node.token, retries: 0 });
  let outcome: "packed" | "failed" | undefined;
  const packing = client.sandboxes.use(id).packDiff(options);
  const over = packing.then(
    () => {
      outcome = "packed";
    },
    () => {
      outcome = "failed";
    },
  );
  while (outcome === undefined && !isReached()) await setImmediate();
  await node.kill();
  await over;
  return outcome === "packed";
}
