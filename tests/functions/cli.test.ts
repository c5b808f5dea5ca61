import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { FunctionReply } from "#sdk";
import { type CliResult, dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { addShell } from "./support.ts";

let node: TestNode;
let folder: string;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "dsec-fn-"));
  node = await startNode();
  await addShell(node);
});
after(() => {
  rmSync(folder, { recursive: true });
  return node[Symbol.asyncDispose]();
});

function run(code: string, words: readonly string[] = [], stdin = ""): Promise<CliResult> {
  const file = join(folder, "main.sh");
  writeFileSync(file, code);
  return dsec(
    node,
    [
      "fn",
      "run",
      "--runtime=sh",
      ...words.filter((word) => word.startsWith("--")),
      file,
      ...words.filter((word) => !word.startsWith("--")),
    ],
    stdin,
  );
}

test("fn run takes stdin, arguments and variables, and gives the program's output and exit status", async () => {
  const { status, stdout, stderr } = await run(
    "cat; echo $1 $NAME; echo e >&2; exit 3",
    ["--env=NAME=value", "arg"],
    "in\n",
  );
  assert.deepEqual([status, stdout, stderr], [3, "in\narg value\n", "e\n"]);
});

test("fn run says on stderr which limit ended a program, and ends as a shell would of a signal", async () => {
  const late = await run("while :; do :; done", ["--time=100ms"]);
  assert.deepEqual([late.status, late.stdout], [137, ""]);
  assert.match(late.stderr, /^dsec: time-limit/);
  const fat = await run("dd if=/dev/zero of=/tmp/a bs=1M count=100", ["--memory=16MiB"]);
  assert.match(fat.stderr, /dsec: memory-limit/);
  assert.equal((await run("kill -SEGV $$")).status, 139);
});

test("fn run --json gives the whole reply, and --no-reuse a container of its own", async () => {
  const { status, stdout } = await run("echo out", ["--no-reuse", "--json"]);
  const reply = JSON.parse(stdout) as FunctionReply;
  assert.deepEqual([status, reply.status, reply.run?.stdout], [0, "ok", "out\n"]);
});

test("fn run refuses what it cannot run, in a line with a hint", async () => {
  writeFileSync(join(folder, "main.unknown"), "");
  const unknown = await dsec(node, ["fn", "run", join(folder, "main.unknown")]);
  assert.notEqual(unknown.status, 0);
  assert.match(unknown.stderr, /names no runtime[\s\S]*--runtime/);
  const missing = await dsec(node, ["fn", "run", join(folder, "none.py")]);
  assert.match(missing.stderr, /none\.py cannot be read/);
  const none = await dsec(node, ["fn", "run", "--runtime=none", join(folder, "main.sh")]);
  assert.match(none.stderr, /no runtime none[\s\S]*there are: .*sh/);
});

test("fn runtimes lists what there is, and fn prepare tells of one that is ready", async () => {
  const { stdout } = await dsec(node, ["fn", "runtimes"]);
  assert.match(stdout, /^NAME +BASE/);
  assert.match(stdout, /^sh +busybox +ready/m);
  assert.match(stdout, /^python +functions-python +made at the first call/m);
  assert.equal((await dsec(node, ["fn", "prepare", "sh"])).stdout, "sh is ready\n");
});
