import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { pack } from "tar-stream";
import type { TestNode } from "../support/node.ts";
import { BASE, create, output, startNodeWithBase } from "../support/sandbox.ts";

describe("an environment", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
    await load("project", "workspace", { "opt/order": "workspace", "src/main": "main" });
    await load("first", "toolkit", { "opt/order": "first", "usr/bin/first": "#!/bin/sh\necho first\n" });
    await load("second", "toolkit", { "opt/order": "second" });
  });
  after(() => node[Symbol.asyncDispose]());

  test("is the base, then the workspace, then each toolkit", async () => {
    await using plain = await create(node, { workspace: "project" });
    assert.equal(await output(plain, "cat /opt/order"), "workspace");
    await using tools = await create(node, { workspace: "project", toolkits: ["first", "second"] });
    assert.equal(await output(tools, "cat /opt/order; first; cat /src/main"), "secondfirst\nmain");
    await using turned = await create(node, { toolkits: ["second", "first"] });
    assert.equal(await output(turned, "cat /opt/order"), "first");
  });

  test("is shared for reading and private for writing", async () => {
    const [one, two] = await Promise.all([
      create(node, { workspace: "project" }),
      create(node, { workspace: "project" }),
    ]);
    await output(one, "echo changed > /src/main; rm /opt/order; rm -r /home");
    assert.equal(await output(two, "cat /src/main; cat /opt/order; test -d /home"), "mainworkspace");
    await Promise.all([one.remove(), two.remove()]);
  });

  test("takes variables, user, folder, host name and limits from the create", async () => {
    await using sandbox = await create(node, {
      env: { GREETING: "hello" },
      user: "nobody",
      workdir: "/tmp",
      hostname: "box",
      resources: { memoryMiB: 64, pids: 40 },
      rlimits: { nofile: { soft: 100, hard: 200 } },
    });
    const line = 'echo "$GREETING $(id -un) $(pwd) $(hostname) $(ulimit -Sn) $(ulimit -Hn)"';
    assert.equal(await output(sandbox, line), "hello nobody /tmp box 100 200");
    const view = await sandbox.info();
    assert.deepEqual([view.resources.memoryMiB, view.resources.pids], [64, 40]);
  });

  test("is deleted twice, and a deleted one is not found", async () => {
    const sandbox = await create(node);
    await Promise.all([sandbox.remove(), sandbox.remove()]);
    await assert.rejects(sandbox.run("true"), { kind: "NotFound" });
  });

  test("can be made by sixty-four at once", async () => {
    const sandboxes = await Promise.all(Array.from({ length: 64 }, () => create(node)));
    const answers = await Promise.all(sandboxes.map((sandbox, index) => output(sandbox, `echo ${index}`)));
    assert.deepEqual(answers, [...Array(64).keys()].map(String));
    await Promise.all(sandboxes.map((sandbox) => sandbox.remove()));
    for (const { class: kind, found, surplus } of await node.client.nodes.resources(node.marks.edge)) {
      assert.deepEqual([kind, found, surplus], [kind, 0, []]);
    }
  });

  async function load(
    name: string,
    kind: "workspace" | "toolkit",
    files: Readonly<Record<string, string>>,
  ): Promise<void> {
    const tar = pack();
    for (const [path, text] of Object.entries(files)) tar.entry({ name: path, mode: 0o755 }, text);
    tar.finalize();
    await node.client.artifacts.import(tar as AsyncIterable<Uint8Array>, { name, kind });
  }

  test("names its base", async () => {
    await using sandbox = await create(node);
    assert.equal((await sandbox.info()).base.split(":")[0], BASE);
  });
});
