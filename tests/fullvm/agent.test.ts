import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { described } from "./screen.ts";
import { answers, createSystem, START_MS, skip, startNodeWithSystem } from "./system.ts";

describe("a full VM whose system carries the agent", { timeout: 1_800_000, skip }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(
    async () => {
      node = await startNodeWithSystem();
      sandbox = await createSystem(node, { resources: { memoryMiB: 256 } });
    },
    { timeout: START_MS },
  );
  after(() => node[Symbol.asyncDispose]());

  test("commands, files, sessions and ports work, as root of the whole machine", async () => {
    assert.deepEqual(sandbox.view?.computer, { firmware: "bios", devices: "virtio", agent: true });
    assert.equal(await output(sandbox, "id -u; hostname"), "0\ncomputer");
    const failed = await sandbox.run("echo out; echo err >&2; exit 3");
    assert.deepEqual([failed.stdoutText, failed.stderrText, failed.status.code], ["out\n", "err\n", 3]);
    await sandbox.files.write("/root/file", "bytes");
    assert.equal(Buffer.from(await sandbox.files.read("/root/file")).toString(), "bytes");
    await refused(sandbox.run(["/no/such/program"]), "CommandNotFound");
    assert.equal((await sandbox.run("id -u", { user: "user" })).stdoutText, "1000\n");
    await using session = await sandbox.session();
    await session.run("cd /tmp; shown=kept");
    assert.equal((await session.run("pwd; echo $shown")).stdoutText, "/tmp\nkept\n");
    const server = await sandbox.start("nc -l -p 7000 -e echo served");
    await sandbox.ports.wait(7000, { timeoutMs: 60_000 });
    using connection = await sandbox.ports.connect(7000);
    let said = "";
    for await (const bytes of connection) said += Buffer.from(bytes).toString();
    assert.equal(said, "served\n");
    await server.wait();
    // Nothing is taken from root: the machine is its own.
    assert.equal(
      await output(
        sandbox,
        "mount -t tmpfs none /mnt 2>/dev/null || mkdir -p /mnt; mount -t tmpfs none /mnt && echo mounted",
      ),
      "mounted",
    );
  });

  test("its console is a shell that is typed into, from what it said before on", async () => {
    using console = await sandbox.computer.console();
    await console.write("echo $((6*7)) >/root/typed\r");
    await waitUntil(
      "what was typed is done",
      START_MS,
      async () => (await sandbox.run("cat /root/typed")).stdoutText === "42\n",
    );
    for await (const bytes of console) {
      assert.ok(bytes.length > 0);
      break;
    }
  });

  test("a console that is spammed holds up nobody: the system goes on, and what is kept is bounded", async () => {
    const done = await sandbox.run("yes spam | head -c 500000 >/dev/ttyS0; echo done", { timeLimitMs: START_MS });
    assert.equal(done.stdoutText, "done\n");
    using console = await sandbox.computer.console();
    for await (const bytes of console) {
      assert.ok(bytes.length <= 64 * 1024);
      assert.match(Buffer.from(bytes).toString("latin1"), /spam\r\nspam/);
      break;
    }
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });

  test("its screen is still though its cursor blinks", async () => {
    const { png, settled } = await sandbox.computer.screenshot({ settledMs: 3_000, waitMs: 50_000 });
    assert.equal(settled, true);
    const { width, height } = described(png);
    assert.deepEqual([width, height], [720, 400]);
  });

  test("a node that is killed: the computer is adopted, with what runs in it", async () => {
    const command = await sandbox.start("echo before; sleep 100000");
    await node.kill();
    await node.start();
    sandbox = node.client.sandboxes.use(sandbox.id);
    assert.equal(await output(sandbox, "ps | grep -c '[s]leep 100000'"), "1");
    const listed = await sandbox.commands();
    assert.ok(listed.some(({ id, status }) => id === command.id && status === undefined));
    await sandbox.command(command.id).signal("SIGKILL");
    assert.equal((await sandbox.command(command.id).wait()).status?.signal, "SIGKILL");
  });

  test("a reset ends what ran, by its type, and the agent of the new start answers; what was written stays", async () => {
    await output(sandbox, "echo kept >/root/kept; sync");
    const command = await sandbox.start("sleep 100000");
    await sandbox.computer.power("reset");
    assert.equal((await command.wait()).status?.cause, "agent-lost");
    await answers(sandbox);
    assert.equal(await output(sandbox, "cat /root/kept"), "kept");
    assert.equal((await sandbox.info()).state, "ready");
  });

  test("a system that shuts down leaves its computer off; calls say so at once; switched on it starts again", async () => {
    await sandbox.run("poweroff").catch(() => undefined);
    await waitUntil("it is off", START_MS, async () => (await sandbox.computer.info()).power === "off");
    await refused(sandbox.run("true"), "FailedPrecondition", /is off/);
    await sandbox.computer.power("on");
    await answers(sandbox);
  });
});
