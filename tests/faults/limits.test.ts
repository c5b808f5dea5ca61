import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { TestNode } from "../support/node.ts";
import { create, output, refused, startNodeWithBase } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";

describe("a sandbox that reaches its limit", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  test("of memory loses the command, is told why, and stays usable", async () => {
    await using sandbox = await create(node, { resources: { memoryMiB: 32 } });
    const hog = await sandbox.run("text=x; while :; do text=$text$text; done", { timeLimitMs: 60_000 });
    assert.equal(hog.status.cause, "out-of-memory");
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });

  test("of processes survives a fork bomb", async () => {
    await using sandbox = await create(node, { resources: { pids: 32 } });
    await sandbox.run("bomb() { bomb | bomb & }; bomb", { timeLimitMs: 3_000 });
    await waitUntil("commands start again", 20_000, async () => {
      const result = await sandbox.run("echo alive", { timeLimitMs: 1_000 }).catch(() => undefined);
      return result?.stdoutText === "alive\n";
    });
  });

  test("of disk gets ENOSPC alone", async () => {
    await using full = await create(node, { resources: { diskMiB: 32 } });
    await using other = await create(node, { resources: { diskMiB: 32 } });
    const result = await full.run("dd if=/dev/urandom of=/tmp/fill bs=1M count=64 && sync");
    assert.notEqual(result.status.code, 0);
    assert.match(result.stderrText, /No space left|quota exceeded/i);
    await refused(full.files.write("/tmp/more", new Uint8Array(8 << 20)), "SandboxLimit");
    await other.files.write("/tmp/file", new Uint8Array(1 << 20));
    assert.equal(await output(full, "echo alive"), "alive");
  });

  test("of time loses its process group and keeps its output", async () => {
    await using sandbox = await create(node);
    const result = await sandbox.run("echo before; sleep 100 & sleep 100", { timeLimitMs: 300 });
    assert.deepEqual([result.status.cause, result.stdoutText], ["timeout", "before\n"]);
    assert.equal(await output(sandbox, "ps | grep -c '[s]leep 100' || true"), "0");
  });

  test("of idleness goes, unless a command runs", async () => {
    const busy = await create(node, { idleTimeoutMs: 400 });
    const idle = await create(node, { idleTimeoutMs: 400 });
    const command = await busy.start("sleep 3");
    const isGone = async (id: string) =>
      (await Array.fromAsync(node.client.sandboxes.list())).every((view) => view.id !== id);
    await waitUntil("the idle one is gone", 10_000, () => isGone(idle.id));
    assert.equal(await isGone(busy.id), false);
    await command.signal("SIGKILL");
    await waitUntil("the busy one is gone after its command", 10_000, () => isGone(busy.id));
  });

  test("of lifetime goes while its command runs", async () => {
    const sandbox = await create(node, { maxLifetimeMs: 500 });
    const command = await sandbox.start("sleep 100");
    const ended = await command.wait().catch((error: unknown) => error);
    assert.ok(ended !== undefined);
    await waitUntil(
      "it is gone",
      10_000,
      async () => (await Array.fromAsync(node.client.sandboxes.list())).length === 0,
    );
  });
});
