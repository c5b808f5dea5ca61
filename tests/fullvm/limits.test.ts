import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CreateSandbox, Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { answers, createSystem, forked, IMAGE, nothingIsLeft, START_MS, skip, startNodeWithSystem } from "./system.ts";

/** The name of a disk whose boot loader does nothing for ever: it touches no memory. */
const STILL = "still";

describe("what a full VM may not have, and does not do", { timeout: 1_800_000, skip }, () => {
  let node: TestNode;
  before(
    async () => {
      node = await startNodeWithSystem({ words: ["--memory-overcommit=1"] });
      await node.client.artifacts.importVmImage(stillDisk(), { name: STILL });
    },
    { timeout: START_MS },
  );
  after(() => node[Symbol.asyncDispose]());

  const create = (request: Partial<CreateSandbox>): Promise<Sandbox> =>
    node.client.sandboxes.create({ base: STILL, resources: { memoryMiB: 32 }, ...request });
  const ids = async () => (await Array.fromAsync(node.client.sandboxes.list())).map(({ id }) => id);

  test("more of them than there is memory are refused by name; one that is paused waits for room, and is there again then", async () => {
    await using stack = new AsyncDisposableStack();
    const [view] = await node.client.nodes.list();
    const resources = { memoryMiB: Math.floor((view?.capacity.memoryMiB ?? 0) * 0.4) };
    const [first, second] = [stack.use(await create({ resources })), stack.use(await create({ resources }))];
    await refused(create({ resources }), "NodeFull", /MiB of memory/);
    await first.pause();
    const third = stack.use(await create({ resources }));
    await refused(first.resume(), "NodeFull", /MiB of memory/);
    await refused(first.computer.screenshot(), "NodeFull");
    assert.equal((await first.info()).state, "paused");
    for (const one of [second, third]) assert.equal((await one.computer.info()).power, "on");
    await nothingIsLeft(node);
    await third.remove();
    assert.equal((await first.computer.info()).power, "on");
  });

  test("a system with less memory than its kernel needs never answers: calls end at their time, it is saved, forked and removed as any", async () => {
    await using stack = new AsyncDisposableStack();
    const never = stack.use(await create({ base: IMAGE, resources: { memoryMiB: 16 } }));
    const late = { timeoutMs: 2_000 };
    await refused(never.run("true", late), "DeadlineExceeded");
    await refused(never.files.write("/x", "y", late), "DeadlineExceeded");
    assert.equal((await never.info()).state, "ready");
    assert.ok((await never.computer.screenshot()).png.length > 0);
    const forks = await forked(stack, never.fork({ count: 2, paused: true }));
    await never.pause();
    for (const one of [never, ...forks]) {
      assert.equal((await one.computer.info()).power, "on");
      await one.remove();
    }
    assert.deepEqual([await ids(), readdirSync(join(node.runDir, "computers"))], [[], []]);
    await nothingIsLeft(node);
  });

  test("a system that hangs keeps its computer: when its node is killed, when it is paused and forked, until it goes on", async () => {
    const { id } = await createSystem(node);
    const use = () => node.client.sandboxes.use(id);
    await output(use(), "echo kept >/root/kept");
    await use().start("sleep 100000");
    // Everything that answers, from a program of the console: nobody is left to be told when it is done.
    using console = await use().computer.console();
    await console.write("kill -STOP $(pidof dsec-agent)\r");
    const late = { timeoutMs: 2_000 };
    await waitUntil("it hangs", START_MS, () =>
      use()
        .run("true", late)
        .then(
          () => false,
          () => true,
        ),
    );
    await node.kill();
    await node.start();
    assert.equal((await use().info()).state, "ready");
    await use().pause();
    await use().resume();
    assert.ok((await use().computer.screenshot()).png.length > 0);
    const [fork] = (await use().fork({ count: 1 })).forks;
    assert.ok(fork !== undefined && "sandbox" in fork, "a copy hangs as it does");
    for (const one of [fork.sandbox, use()]) {
      using typed = await one.computer.console();
      await typed.write("kill -CONT $(pidof dsec-agent)\r");
      await answers(one);
      assert.equal(await output(one, "cat /root/kept; hostname"), `kept\n${one.id === id ? "computer" : one.id}`);
      await one.remove();
    }
    await nothingIsLeft(node);
  });

  test("one that nobody uses is removed at its time, though somebody looks at its display; one that is paused at the end of its life", async () => {
    const idle = await create({ idleTimeoutMs: 3_000 });
    using display = await idle.computer.display();
    void Array.fromAsync(display).catch(() => undefined);
    await waitUntil("the idle one is gone", START_MS, async () => (await ids()).length === 0);
    const mortal = await create({ maxLifetimeMs: 6_000, idleTimeoutMs: 1_000 });
    const [kept] = (await mortal.fork({ count: 1, paused: true })).forks;
    assert.ok(kept !== undefined && "sandbox" in kept);
    await waitUntil("it was idle", START_MS, async () => !(await ids()).includes(mortal.id));
    assert.deepEqual(await ids(), [kept.sandbox.id], "one that is paused is not idle");
    await waitUntil("its life is over", START_MS, async () => (await ids()).length === 0);
    assert.deepEqual(readdirSync(join(node.runDir, "computers")), []);
    await nothingIsLeft(node);
  });
});

function stillDisk(): Buffer {
  const disk = Buffer.alloc(1024 * 1024);
  randomBytes(400).copy(disk);
  // An endless loop, where a boot loader would be.
  disk.writeUInt16LE(0xfeeb, 0);
  disk.writeUInt16LE(0xaa55, 510);
  return disk;
}
