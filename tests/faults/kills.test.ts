import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { create, output, refused, startNodeWithBase } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";

describe("a process of the platform that is killed", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  const agentOf = ({ id }: Sandbox): number =>
    JSON.parse(readFileSync(join(node.runDir, "sandboxes", id, "agent.json"), "utf8")).pid;

  async function assertNothingElse(): Promise<void> {
    for (const { class: name, expected, found, surplus } of await node.client.nodes.resources(node.marks.edge)) {
      assert.deepEqual([name, found, surplus], [name, expected, []]);
    }
  }

  test("as the launcher is replaced at the next create; sandboxes and commands go on", async () => {
    await using before = await create(node);
    const command = await before.start("echo one; sleep 1; echo two; exit 5");
    const launchers = node.traces().processes.filter((line) => line.includes("dsec-cradle"));
    assert.ok(launchers.length > 0);
    process.kill(Number(launchers[0]?.split(" ")[0]), "SIGKILL");
    await using next = await create(node);
    assert.equal(await output(next, "echo new"), "new");
    const result = await command.result();
    assert.deepEqual([result.status.code, result.stdoutText], [5, "one\ntwo\n"]);
    await assertNothingElse();
  });

  test("as an agent fails its sandbox at once: compute is given back, commands end, files wait for removal", async () => {
    const sandbox = await create(node);
    const command = await sandbox.start("echo said; sleep 1000");
    await waitUntil("it spoke", 10_000, async () => (await command.info()).stdout.seen === 5);
    process.kill(agentOf(sandbox), "SIGKILL");
    const killedAtMs = Date.now();
    const { status } = await command.wait();
    assert.ok(Date.now() - killedAtMs < 5_000);
    assert.equal(status.cause, "agent-lost");
    assert.equal((await command.result()).stdoutText, "said\n");
    await waitUntil("its compute is back", 10_000, async () => {
      const [seen] = await node.client.nodes.list();
      return seen?.promised.memoryMiB === 0 && seen.promised.sandboxes === 1;
    });
    const view = await sandbox.info();
    assert.equal(view.state, "failed");
    assert.match(view.reason ?? "", /agent/);
    await refused(sandbox.run("true"), "FailedPrecondition");
    await assertNothingElse();
    await Promise.all([sandbox.remove(), sandbox.remove()]);
    await sandbox.remove();
    await assertNothingElse();
  });

  test("as all of a sandbox by its own root leaves a sandbox that works", async () => {
    await using sandbox = await create(node);
    // The spawner, the shell itself, and whatever else it may reach.
    await sandbox.run("kill -9 2; kill -9 -1; kill -9 $$");
    assert.equal(await output(sandbox, "echo alive"), "alive");
    assert.equal((await sandbox.info()).state, "ready");
  });

  test("while thousands of its processes are made answers files within a second, and goes when told", async () => {
    const sandbox = await create(node, { resources: { pids: 128 } });
    await sandbox.start("bomb() { bomb | bomb & }; trap '' TERM INT HUP; bomb; while :; do :; done");
    const pids = () =>
      readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && cgroupsOf(pid).includes(`/${sandbox.id}`)).length;
    await waitUntil("the limit is reached", 20_000, () => pids() > 100);
    assert.ok(pids() <= 129, "the limit holds");
    // The answer may be that there is no room for another process: it must come.
    const askedAtMs = Date.now();
    await sandbox.files.stat("/etc").catch((error: { kind: string }) => assert.equal(error.kind, "SandboxLimit"));
    assert.ok(Date.now() - askedAtMs < 5_000, "an answer within a second, with five for a busy machine");
    await sandbox.remove();
    assert.equal(pids(), 0);
    await assertNothingElse();
  });
});

function cgroupsOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, "latin1");
  } catch {
    return "";
  }
}
