import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Command } from "#sdk";
import { create, output, startNodeWithBase } from "../support/sandbox.ts";

/** Writes the numbers up to 20,000 over about two seconds: more than a window, and longer than a restart. */
const COUNT =
  "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; [ $((i % 100)) != 0 ] || usleep 10000; done; exit 7";

describe("a node that was killed", () => {
  test("adopts sandboxes, running commands and all of their output", async () => {
    await using node = await startNodeWithBase();
    const sandbox = await create(node);
    await sandbox.files.write("/tmp/kept", new TextEncoder().encode("kept"));
    const started = await sandbox.start(COUNT);
    await node.kill();
    await node.start();

    const adopted = node.client.sandboxes.use(sandbox.id);
    assert.equal((await adopted.info()).state, "ready");
    assert.equal(await output(adopted, "cat /tmp/kept"), "kept");
    const command: Command = adopted.command(started.id);
    const result = await command.result();
    assert.deepEqual([result.status.cause, result.status.code], ["exited", 7]);
    const expected = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("");
    assert.equal(result.stdoutText, expected);
  });

  test("knows how commands ended while it was away", async () => {
    await using node = await startNodeWithBase();
    const sandbox = await create(node);
    const started = await sandbox.start("usleep 300000; echo done; exit 3");
    await node.kill();
    // The command ends by itself now; its end leaves no trace on the host but the time.
    await new Promise((resolve) => setTimeout(resolve, 600));
    await node.start();
    const result = await node.client.sandboxes.use(sandbox.id).command(started.id).result();
    assert.deepEqual([result.status.code, result.stdoutText], [3, "done\n"]);
  });

  test("finishes what it had begun: creates under way leave a ready sandbox or nothing", async () => {
    await using node = await startNodeWithBase();
    const creates = Array.from({ length: 24 }, () => create(node).catch(() => undefined));
    await Promise.race(creates);
    await node.kill();
    await Promise.all(creates);
    await node.start();
    for await (const view of node.client.sandboxes.list()) {
      assert.equal(view.state, "ready", view.reason);
      assert.equal(await output(node.client.sandboxes.use(view.id), "echo alive"), "alive");
    }
    for (const count of await node.client.nodes.resources(node.marks.edge)) {
      assert.deepEqual(count.surplus, [], count.class);
      assert.equal(count.found, count.expected, count.class);
    }
  });
});

test("a node stopped with keep leaves its sandboxes to the next one", async () => {
  await using node = await startNodeWithBase();
  const sandbox = await create(node);
  const pid = await output(sandbox, "echo $$ > /tmp/file; cat /tmp/file");
  assert.equal(await node.stop({ keep: true }), 0);
  await node.start();
  assert.equal(await output(node.client.sandboxes.use(sandbox.id), "cat /tmp/file"), pid);
});

test("a node that stops removes its sandboxes", async () => {
  await using node = await startNodeWithBase();
  await Promise.all(Array.from({ length: 8 }, () => create(node)));
  assert.equal(await node.stop(), 0);
  const { processes, cgroups, mounts } = node.traces();
  assert.deepEqual([processes, cgroups, mounts], [[], [], []]);
});
