import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BASE, create, output, startNodeWithBase } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";

const NOTHING = { processes: [], cgroups: [], mounts: [], loopDevices: [] };

async function states(node: TestNode): Promise<readonly string[]> {
  return (await Array.fromAsync(node.client.sandboxes.list())).map(({ state }) => state);
}

/** Asserts that the node has of everything what its sandboxes need. */
async function assertBalanced(node: TestNode): Promise<void> {
  for (const { class: name, expected, found, surplus } of await node.client.nodes.resources(node.marks.edge)) {
    assert.deepEqual([name, found, surplus], [name, expected, []]);
  }
}

describe("a sandbox", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  test("that is removed by eight at once, while it writes without end, is gone for all of them", async () => {
    const sandbox = await create(node);
    const command = await sandbox.start("yes");
    await waitUntil("it writes", 10_000, async () => (await command.info()).stdout.seen > 100_000);
    await Promise.all(Array.from({ length: 8 }, () => sandbox.remove()));
    await sandbox.remove();
    assert.deepEqual(await states(node), []);
    await assertBalanced(node);
  });

  test("that is removed while it is made never becomes ready", async () => {
    const creating = create(node).then(
      () => "ready",
      (error: { kind: string }) => error.kind,
    );
    let id: string | undefined;
    await waitUntil("it is listed", 10_000, async () => {
      const [view] = await Array.fromAsync(node.client.sandboxes.list());
      id = view?.id;
      return id !== undefined;
    });
    await node.client.sandboxes.remove(id ?? "");
    assert.ok(["ready", "Cancelled", "NotFound", "FailedPrecondition"].includes(await creating));
    assert.deepEqual(await states(node), []);
    await assertBalanced(node);
  });

  test("whose client left in the middle of its creation is not left behind", async () => {
    for (let leaveAfterMs = 0; leaveAfterMs < 60; leaveAfterMs += 4) {
      const signal = AbortSignal.timeout(leaveAfterMs);
      const made = await node.client.sandboxes.create({ base: BASE }, { signal }).catch(() => undefined);
      await made?.remove();
    }
    await waitUntil("all are gone", 10_000, async () => (await states(node)).length === 0);
    await assertBalanced(node);
  });

  test("is one under one idempotency key, for ten at once and after a restart of any kind", async () => {
    const make = () => node.client.sandboxes.create({ base: BASE }, { idempotencyKey: "one" });
    const all = await Promise.all(Array.from({ length: 10 }, make));
    const [first = assert.fail("none")] = all;
    assert.equal(new Set(all.map(({ id }) => id)).size, 1);
    await node.kill();
    await node.start();
    assert.equal((await make()).id, first.id);
    await node.stop({ keep: true });
    await node.start();
    assert.equal((await make()).id, first.id);
    assert.deepEqual(await states(node), ["ready"]);
    await node.client.sandboxes.remove(first.id);
  });

  test("is one under a key whose first create died with its node", async () => {
    const keys = Array.from({ length: 8 }, (_, index) => `lost ${index}`);
    const make = (key: string) => node.client.sandboxes.create({ base: BASE }, { idempotencyKey: key });
    const first = keys.map((key) => make(key).catch(() => undefined));
    await waitUntil("some are being made", 10_000, async () => (await states(node)).length > 0);
    await node.kill();
    const known = await Promise.all(first);
    await node.start();
    const again = await Promise.all(keys.map(make));
    for (const [index, sandbox] of known.entries()) {
      if (sandbox !== undefined) assert.equal(again[index]?.id, sandbox.id);
    }
    assert.deepEqual(await states(node), Array(keys.length).fill("ready"));
    await assertBalanced(node);
    await Promise.all(again.map((sandbox) => sandbox.remove()));
  });

  test("keeps its lifetime across the death of its node, and goes when it is over", async () => {
    const { id } = await create(node, { maxLifetimeMs: 1_500 });
    const idle = await create(node, { idleTimeoutMs: 500 });
    const busy = await create(node, { idleTimeoutMs: 500 });
    const command = await busy.start("sleep 1000");
    await node.kill();
    await node.start();
    await waitUntil("both are gone", 20_000, async () => {
      const ids = (await Array.fromAsync(node.client.sandboxes.list())).map((view) => view.id);
      return !ids.includes(id) && !ids.includes(idle.id);
    });
    const adopted = node.client.sandboxes.use(busy.id);
    assert.equal((await adopted.info()).state, "ready", "a running command is activity for the next node too");
    await adopted.command(command.id).signal("SIGKILL");
    await waitUntil("the busy one is gone", 20_000, async () => (await states(node)).length === 0);
    await assertBalanced(node);
  });
});

describe("a node in the middle of forty creates", () => {
  for (const [signal, stop] of [
    ["SIGTERM", (node: TestNode) => node.stop()],
    [
      "SIGINT, and SIGTERM from somebody impatient,",
      (node: TestNode) => {
        process.kill(node.pid, "SIGINT");
        return node.stop();
      },
    ],
  ] as const) {
    test(`that gets ${signal} ends with 0 and leaves nothing`, async () => {
      await using node = await startNodeWithBase();
      // Not the node's own client, which goes with it: what callers hear is looked at.
      const client = new Client({ url: node.url, token: node.token });
      const creates = Array.from({ length: 40 }, () =>
        client.sandboxes.create({ base: BASE }).catch((error: { kind: string }) => error.kind),
      );
      await Promise.race(creates);
      assert.equal(await stop(node), 0);
      const outcomes = await Promise.all(creates);
      client.close();
      for (const outcome of outcomes) if (typeof outcome === "string") assert.equal(outcome, "Unavailable");
      assert.deepEqual(node.traces(), NOTHING);
    });
  }

  test("that gets SIGUSR2 leaves those that were ready to the next one, and nothing of the others", async () => {
    await using node = await startNodeWithBase();
    const creates = Array.from({ length: 40 }, () => create(node).catch(() => undefined));
    await Promise.race(creates);
    assert.equal(await node.stop({ keep: true }), 0);
    const known = (await Promise.all(creates)).filter((sandbox) => sandbox !== undefined);
    await node.start();
    const all = await states(node);
    assert.deepEqual(all, Array(all.length).fill("ready"));
    for (const { id } of known) assert.equal(await output(node.client.sandboxes.use(id), "echo alive"), "alive");
    await assertBalanced(node);
  });
});
