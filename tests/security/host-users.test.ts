import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { compileProgram, create, output, startNodeWithBase } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";

/** A user of the host who has no part in the node. */
const STRANGER = 65_534;

/** What the stranger gets out of running a program of the host. */
function asStranger(program: string, ...words: readonly string[]) {
  return spawnSync(program, words, { uid: STRANGER, gid: STRANGER, encoding: "utf8", cwd: "/" });
}

describe("a user of the host", () => {
  let node: TestNode;
  let sandbox: Sandbox;

  before(async () => {
    node = await startNodeWithBase();
    // Folders of a real node can be entered by everybody; those of a test cannot.
    for (const folder of [node.marks.folder, node.dataDir, node.runDir]) chmodSync(folder, 0o755);
    const body = compileProgram(join(import.meta.dirname, "testdata/rights.c"));
    const archive = await tarOf({ name: "bin/rights", mode: 0o4755, uid: 0, gid: 0, body });
    await node.client.artifacts.import(archive, { name: "setuid", kind: "workspace" });
    sandbox = await create(node, { workspace: "setuid" });
  });
  after(() => node[Symbol.asyncDispose]());

  test("gets no rights from a setuid program of an image, though it works in the sandbox", async () => {
    const inside = await sandbox.run(["/bin/rights"], { user: "1000" });
    assert.equal(inside.stdoutText, "1000 0\n");
    const layers = readdirSync(join(node.runDir, "layers")).map((name) =>
      join(node.runDir, "layers", name, "bin/rights"),
    );
    const programs = layers.filter((path) => statSync(path, { throwIfNoEntry: false }) !== undefined);
    assert.equal(programs.length, 1);
    for (const path of programs) assert.equal((asStranger(path).error as NodeJS.ErrnoException).code, "EACCES");
  });

  test("sees no file of a sandbox", async () => {
    await sandbox.files.write("/tmp/secret", new TextEncoder().encode("x"), { mode: 0o666 });
    assert.match(
      spawnSync("find", [node.runDir, node.dataDir, "-name", "secret"], { encoding: "utf8" }).stdout,
      /secret/,
    );
    assert.equal(asStranger("find", node.runDir, node.dataDir, "-name", "secret").stdout, "");
    assert.equal(await output(sandbox, "cat /tmp/secret"), "x");
  });

  test("reads nothing of the node but where it listens", () => {
    const files = asStranger("find", node.runDir, node.dataDir, "-type", "f", "-readable").stdout.trim().split("\n");
    assert.deepEqual(files, [join(node.runDir, "node.json")]);
    const socket = spawnSync("find", [node.runDir, "-name", "agent.sock"], { encoding: "utf8" }).stdout.trim();
    assert.equal(statSync(socket).mode & 0o777, 0o600);
  });

  test("finds mounts of the node that give no rights and no devices", () => {
    const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
    const own = mounts.filter((line) => line.split(" ")[1]?.startsWith(node.runDir));
    assert.ok(own.length >= 3, "two layers and a volume");
    for (const line of own) assert.match(line, /\bnosuid,nodev\b/);
  });
});
