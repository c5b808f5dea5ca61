import assert from "node:assert/strict";
import { readFileSync, watch } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { create, installProgram, output, startNodeWithBase } from "../support/sandbox.ts";

describe("the root of a sandbox", () => {
  let node: TestNode;
  let sandbox: Sandbox;

  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
  });
  after(() => node[Symbol.asyncDispose]());

  test("is stopped at every attempt on the agent, namespaces, mounts, the kernel and devices", async () => {
    await installProgram(sandbox, join(import.meta.dirname, "testdata/attacks.c"), "/tmp/attacks");
    const lines = (await output(sandbox, ["/tmp/attacks"])).split("\n");
    assert.ok(lines.length > 65, `${lines.length} attempts`);
    assert.deepEqual(
      lines.filter((line) => / (succeeded|crashed)$/.test(line)),
      [],
    );
  });

  test("cannot kill the agent", async () => {
    await sandbox.run("kill -9 1; kill -9 -1; kill -STOP 1");
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });

  test("can kill the spawner, and commands start again", async () => {
    await sandbox.run(
      "for pid in $(ls /proc | grep '^[0-9]*$'); do [ $pid = 1 ] || [ $pid = $$ ] || kill -9 $pid; done",
    );
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });

  test("sees its own processes only", async () => {
    const commands = await output(sandbox, "for file in /proc/[0-9]*/comm; do cat $file; done 2>/dev/null | sort -u");
    assert.deepEqual(
      commands.split("\n").filter((name) => !/^(dsec-agent|dsec-spawner|sh|cat|sort)$/.test(name)),
      [],
    );
  });

  test("sees no path of the host in its mounts", async () => {
    const mounts = await output(sandbox, "cat /proc/self/mountinfo");
    assert.ok(!mounts.includes(node.marks.folder), mounts);
  });

  test("has no interface but lo, which is up", async () => {
    const devices = await output(sandbox, "cat /proc/net/dev");
    assert.deepEqual(
      devices.match(/^\s*[\w.@-]+(?=:)/gm)?.map((name) => name.trim()),
      ["lo"],
    );
    assert.match(await output(sandbox, "ifconfig lo"), /\bUP\b.*\bRUNNING\b/);
  });

  test("has the bounding set of fourteen capabilities and a filter", async () => {
    const status = await output(sandbox, "cat /proc/self/status");
    assert.match(status, /^CapBnd:\s+00000000a80425fb$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
  });

  test("writes files that belong to ids of its own on the host", async () => {
    const map = (await output(sandbox, "cat /proc/self/uid_map")).split(/\s+/).map(Number);
    assert.equal(map[0], 0);
    assert.ok((map[1] ?? 0) >= 65_536, `root maps to ${map[1]}`);
    assert.equal(map[2], 65_536);
  });
});

test("two sandboxes have different ids and see nothing of each other", async () => {
  await using node = await startNodeWithBase();
  const [one, two] = await Promise.all([create(node), create(node)]);
  await one.files.write("/tmp/secret", new TextEncoder().encode("one"));
  assert.notEqual(await output(one, "cat /proc/self/uid_map"), await output(two, "cat /proc/self/uid_map"));
  assert.equal(await output(two, "ls /tmp"), "");
});

test("a sandbox that takes all the terminals it can get leaves the others theirs", async () => {
  await using node = await startNodeWithBase();
  const [greedy, other] = await Promise.all([create(node), create(node)]);
  await installProgram(greedy, join(import.meta.dirname, "testdata/terminals.c"), "/tmp/terminals");
  const holding = await greedy.start(["/tmp/terminals"]);
  const { value: said } = await holding.stdout().next();
  assert.equal(Number(Buffer.from(said ?? []).toString()), 64);
  const refused = { kind: "SandboxLimit", message: /no terminal left/, hint: /64/ };
  await assert.rejects(greedy.terminal(), refused);
  const command = await other.terminal({ line: ["tty"] });
  assert.match((await command.result()).stdoutText, /^\/dev\/pts\/0/);
  // All sandboxes that the node takes may do the same, and the machine keeps its own.
  const [most, reserve] = ["max", "reserve"].map((name) =>
    Number(readFileSync(`/proc/sys/kernel/pty/${name}`, "utf8")),
  );
  assert.ok((most ?? 0) - (reserve ?? 0) >= 4_000 * 64, `${most} terminals`);
});

test("a sandbox that takes all that the kernel gives one user leaves the others, and the host, theirs", async () => {
  await using node = await startNodeWithBase();
  const [greedy, other] = await Promise.all([create(node), create(node)]);
  const source = join(import.meta.dirname, "testdata/shares.c");
  for (const sandbox of [greedy, other]) await installProgram(sandbox, source, "/tmp/shares");
  const holding = await greedy.start(["/tmp/shares", "take"]);
  assert.equal(Buffer.from((await holding.stdout().next()).value ?? []).toString(), "taken\n");
  assert.equal(await output(other, ["/tmp/shares"]), "ok\nok\nok");
  watch(import.meta.dirname).close();
});
