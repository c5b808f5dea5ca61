import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../../support/node.ts";
import { create, output } from "../../support/sandbox.ts";
import { packContract } from "../pack.ts";
import { MICROVM } from "./backend.ts";

const KILLS = 5;
/** By when a pack on a busy machine has let its sandbox go. */
const LATEST_MS = 1_500;

packContract(MICROVM);

describe("packs of microVMs", { timeout: 1_200_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  async function packed(sandbox: Sandbox): Promise<string> {
    const name = `packed-${randomBytes(4).toString("hex")}`;
    await sandbox.packDiff({ name });
    return name;
  }

  test("a container begins with what a machine wrote, and a machine with what that changed", async () => {
    await using first = await MICROVM.create(node);
    await output(first, "mkdir /kept && echo 1 >/kept/one && rm /bin/vi");
    await using second = await create(node, { base: await packed(first) });
    assert.equal(await output(second, "cat /kept/one; ls -d /bin/vi 2>/dev/null || echo gone"), "1\ngone");
    await output(second, "echo 2 >/kept/two && rm /kept/one");
    await using third = await MICROVM.create(node, { base: await packed(second) });
    assert.equal(
      await output(third, "ls /kept; cat /kept/two; ls -d /bin/vi 2>/dev/null || echo gone"),
      "two\n2\ngone",
    );
  });

  test("none has the machine-id of another, however it began", async () => {
    await using first = await MICROVM.create(node);
    await output(first, "echo changed >/etc/changed");
    await using second = await MICROVM.create(node, { base: await packed(first) });
    const ids = await Promise.all([first, second].map((one) => output(one, "cat /etc/machine-id")));
    assert.notEqual(ids[0], ids[1]);
    await using container = await create(node, { base: await packed(second) });
    assert.equal(
      await output(container, "cat /etc/changed; cat /etc/machine-id 2>/dev/null || echo none"),
      "changed\nnone",
    );
  });

  test("a paused one is packed with what its memory had not written yet", async () => {
    await using sandbox = await MICROVM.create(node);
    await output(sandbox, "echo in memory >/file");
    await sandbox.pause();
    await using copy = await MICROVM.create(node, { base: await packed(sandbox) });
    assert.equal(await output(copy, "cat /file"), "in memory");
  });

  test("whenever its node is killed, a sandbox that is packed goes on", async () => {
    const { id } = await MICROVM.create(node);
    const sandbox = () => node.client.sandboxes.use(id);
    const counter = await sandbox().start("i=0; while :; do echo $i >/count; i=$((i+1)); sleep 0.02; done");
    for (let kill = 0; kill < KILLS; kill++) {
      await output(sandbox(), "dd if=/dev/zero of=/big bs=1M count=8 2>/dev/null");
      const left = new AbortController();
      const packing = sandbox()
        .packDiff({ name: `left-${kill}`, signal: left.signal })
        .catch(() => undefined);
      await delay((kill * LATEST_MS) / KILLS);
      await node.kill();
      left.abort();
      await packing;
      await node.start();
      const before = Number(await output(sandbox(), "cat /count"));
      await output(sandbox(), `until [ "$(cat /count)" -gt ${before} ]; do sleep 0.05; done`);
    }
    await sandbox().command(counter.id).signal("SIGKILL");
    await packed(sandbox());
    await sandbox().remove();
    for (const { surplus } of await node.client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
  });
});
