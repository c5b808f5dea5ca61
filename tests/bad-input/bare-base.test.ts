import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { startNode, type TestNode } from "../support/node.ts";
import { refused } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";

describe("a base without a shell", () => {
  let node: TestNode;
  before(async () => {
    node = await startNode();
    const echo = await tarOf({ name: "echo", mode: 0o755, body: readFileSync("/bin/busybox") });
    await node.client.artifacts.import(echo, { name: "echo", kind: "base" });
    await node.client.artifacts.import(await tarOf(), { name: "nothing", kind: "base" });
  });
  after(() => node[Symbol.asyncDispose]());

  test("runs programs, and says that a line has no shell", async () => {
    await using sandbox = await node.client.sandboxes.create({ base: "echo" });
    assert.equal((await sandbox.run(["/echo", "hello"])).stdoutText, "hello\n");
    await refused(sandbox.run("echo hello"), "CommandNotFound");
    assert.equal((await sandbox.run(["/echo", "still"])).stdoutText, "still\n");
  });

  test("may be entirely empty: files work, commands are not found", async () => {
    await using sandbox = await node.client.sandboxes.create({ base: "nothing" });
    await refused(sandbox.run(["/bin/true"]), "CommandNotFound");
    await sandbox.files.write("/tmp/file", "content", { parents: true });
    assert.equal(await sandbox.files.readText("/tmp/file"), "content");
    await refused(sandbox.run(["true"], { user: "somebody" }), "InvalidArgument");
  });
});
