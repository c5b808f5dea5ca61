import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
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

test("fn start prints an id, fn wait ends as the program does, fn drop forgets it", async () => {
  const file = join(folder, "main.sh");
  writeFileSync(file, "cat; sleep 0.2; echo late; exit 4");
  const started = await dsec(node, ["fn", "start", "--runtime=sh", file], "in\n");
  const id = started.stdout.trim();
  for (let time = 0; time < 2; time += 1) {
    const { status, stdout } = await dsec(node, ["fn", "wait", id]);
    assert.deepEqual([status, stdout], [4, "in\nlate\n"]);
  }
  assert.equal((await dsec(node, ["fn", "drop", id])).status, 0);
  const gone = await dsec(node, ["fn", "wait", id]);
  assert.equal(gone.status, 125);
  assert.match(gone.stderr, /no call/);
});

test("fn judge tells the verdict on each test of a directory or a list, and by its exit status whether all are accepted", async () => {
  const file = join(folder, "main.sh");
  writeFileSync(file, "cat");
  const tests = join(folder, "tests");
  mkdirSync(tests);
  for (const [name, text] of Object.entries({ "2.in": "a b\n", "2.out": "a  b\n", "10.in": "c\n", "10.ans": "d\n" })) {
    writeFileSync(join(tests, name), text);
  }
  const judge = (...words: string[]) => dsec(node, ["fn", "judge", "--runtime=sh", file, ...words]);
  const all = await judge(`--tests=${tests}`, "--checker=tokens");
  assert.equal(all.status, 1);
  assert.match(all.stdout, /^TEST +VERDICT.*\n2 +accepted .*\n10 +wrong-answer .*\n1 of 2 accepted\n$/);
  const list = join(folder, "tests.json");
  writeFileSync(
    list,
    JSON.stringify([{ stdin: "1.0000001", expected: "1", checker: { type: "numbers", tolerance: 1e-6 } }]),
  );
  assert.equal((await judge(`--tests=${list}`)).status, 0);
  writeFileSync(join(tests, "3.in"), "");
  assert.match((await judge(`--tests=${tests}`)).stderr, /3\.in has no answer/);
  assert.match((await judge(`--tests=${list}`, "--checker=close")).stderr, /no checker[\s\S]*numbers:1e-6/);
});

test("fn batch carries out a call of each line, and tells of each in one", async () => {
  const calls = [
    { runtime: "sh", code: "echo 0" },
    { runtime: "none", code: "" },
    { runtime: "sh", code: "exit 1" },
  ];
  const text = calls.map((call) => `${JSON.stringify(call)}\n`).join("\n");
  const { status, stdout } = await dsec(node, ["fn", "batch", "--concurrency=2", "-"], text);
  assert.equal(status, 1);
  const lines = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const told = lines.map(({ index, result, error }) => [index, result?.status ?? error?.kind]).sort();
  assert.deepEqual(told, [
    [0, "ok"],
    [1, "NotFound"],
    [2, "runtime-error"],
  ]);
  const good = await dsec(node, ["fn", "batch", "-"], JSON.stringify(calls[0]));
  assert.equal(good.status, 0);
  const bad = await dsec(node, ["fn", "batch", "-"], "{");
  assert.match(bad.stderr, /line 1 of - is not JSON/);
});
