import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { BASE, startNodeWithBase } from "../support/sandbox.ts";

/** The promise is half a second on an idle machine; tests share theirs. */
const SECOND_RUN_MS = 2_000;

describe("dsec", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  const run = (words: readonly string[], stdin?: string) => dsec(node, ["run", "--base", BASE, ...words], stdin);
  const sandboxes = async () => (await Array.fromAsync(node.client.sandboxes.list())).length;

  test("run passes stdin, stdout, stderr and the exit status, and removes the sandbox", async () => {
    const result = await run(["--", "sh", "-c", "cat; echo err >&2; exit 42"], "in\n");
    assert.deepEqual([result.status, result.stdout, result.stderr], [42, "in\n", "err\n"]);
    assert.equal(await sandboxes(), 0);
  });

  test("run is quick once the node is up", async () => {
    const { status, wallMs } = await run(["--", "true"]);
    assert.equal(status, 0);
    assert.ok(wallMs < SECOND_RUN_MS, `${wallMs} ms`);
  });

  test("run ends as a shell would: 127, 126, 128 + signal", async () => {
    assert.equal((await run(["--", "/bin/none"])).status, 127);
    assert.equal((await run(["--", "/tmp"])).status, 126);
    assert.equal((await run(["--", "sh", "-c", "kill -9 $$"])).status, 137);
  });

  test("an unknown base is one line and a hint, and status 125", async () => {
    const { status, stderr } = await dsec(node, ["run", "--base", "nowhere", "--", "true"]);
    assert.equal(status, 125);
    assert.match(stderr, /^dsec: .*nowhere.*\n(hint: .*\n)?$/);
  });

  test("a missing workspace folder is refused before anything is made", async () => {
    const { status, stderr } = await run(["--workspace", "./no-such-folder", "--", "true"]);
    assert.equal(status, 125);
    assert.match(stderr, /no-such-folder/);
  });

  test("a folder becomes a workspace on the fly", async () => {
    const folder = join(node.marks.folder, "my project");
    mkdirSync(join(folder, "src"), { recursive: true });
    writeFileSync(join(folder, "src/a.sh"), "echo from the workspace", { mode: 0o755 });
    const { status, stdout, stderr } = await run([
      "--workspace",
      folder,
      "--",
      "sh",
      "-c",
      "cat $(find / -name a.sh -xdev)",
    ]);
    assert.deepEqual([status, stdout], [0, "echo from the workspace"], stderr);
  });

  test("create, exec, cp, logs, info, ls and rm work on one sandbox", async () => {
    const { stdout } = await dsec(node, ["create", "--base", BASE, "--label", "for=test"]);
    const id = stdout.trim();
    const file = join(node.marks.folder, "file");
    writeFileSync(file, "copied");
    assert.equal((await dsec(node, ["cp", file, `${id}:/tmp/file`])).status, 0);
    assert.equal((await dsec(node, ["exec", id, "--", "cat", "/tmp/file"])).stdout, "copied");
    assert.equal((await dsec(node, ["cp", `${id}:/tmp/file`, `${file}.back`])).status, 0);
    assert.equal(readFileSync(`${file}.back`, "utf8"), "copied");
    assert.equal((await dsec(node, ["logs", id])).stdout, "copied");
    assert.equal(JSON.parse((await dsec(node, ["--json", "info", id])).stdout).labels.for, "test");
    assert.match((await dsec(node, ["ls"])).stdout, new RegExp(id));
    assert.equal((await dsec(node, ["rm", id])).status, 0);
    assert.equal((await dsec(node, ["rm", id])).status, 125);
    assert.equal(await sandboxes(), 0);
  });

  test("status counts what exists against what should", async () => {
    const { status, stdout } = await dsec(node, ["status"]);
    assert.equal(status, 0);
    assert.match(stdout, new RegExp(node.marks.edge));
  });
});
