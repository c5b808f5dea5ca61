import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { FunctionReply, InvokeFunction } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { addRuntime, addShell } from "./support.ts";

let node: TestNode;
before(async () => {
  node = await startNode();
  await addShell(node);
});
after(() => node[Symbol.asyncDispose]());

const invoke = (call: Partial<InvokeFunction>): Promise<FunctionReply> =>
  node.client.functions.invoke({ runtime: "sh", ...call });
const sh = (code: string, more: Partial<InvokeFunction> = {}) => invoke({ code, ...more });

test("a program gets its input, arguments, variables and files, and what it made comes back", async () => {
  const reply = await sh("cat; echo $1 $NAME; cat dir/a; echo made > out/b; echo e >&2", {
    stdin: "in\n",
    args: ["arg"],
    env: { NAME: "value" },
    files: { "dir/a": "file\n", "out/.keep": "" },
    outputs: ["out/b", "none"],
  });
  assert.equal(reply.status, "ok");
  assert.equal(reply.run?.stdout, "in\narg value\nfile\n");
  assert.equal(reply.run?.stderr, "e\n");
  assert.equal(reply.run?.exitCode, 0);
  assert.deepEqual(reply.files, { "out/b": "made\n" });
  assert.match(reply.message ?? "", /not there to return: none/);
});

test("a command of the environment runs in place of code", async () => {
  const reply = await invoke({ command: ["echo", "a"], args: ["b"] });
  assert.equal(reply.run?.stdout, "a b\n");
});

test("a program that fails is a runtime error, with its exit status or signal", async () => {
  assert.deepEqual(pick(await sh("exit 3")), { status: "runtime-error", exitCode: 3, signal: undefined });
  assert.deepEqual(pick(await sh("kill -SEGV $$")), {
    status: "runtime-error",
    exitCode: undefined,
    signal: "SIGSEGV",
  });
});

test("a program that does not exist is the caller's error, and says why", async () => {
  const reply = await invoke({ command: ["no-such-program"] });
  assert.equal(reply.status, "runtime-error");
  assert.match(reply.message ?? "", /ENOENT/);
});

test("processor time decides the time limit; waiting has a limit by the clock", async () => {
  const busy = await sh("while :; do :; done", { limits: { runMs: 200 } });
  assert.equal(busy.status, "time-limit");
  assert.ok((busy.run?.cpuMs ?? 0) >= 200);
  const waits = await sh("sleep 100", { limits: { runMs: 100 } });
  assert.equal(waits.status, "time-limit");
  assert.match(waits.message ?? "", /by the clock/);
});

test("a program that waits for us is not blamed: neither for its input, nor for its output", async () => {
  const stdin = "x".repeat(30_000_000);
  // It has a twentieth of a second, and would have 5.15 s by the clock.
  const reply = await sh("cat | wc -c", { stdin, limits: { runMs: 1_000 } });
  assert.deepEqual([reply.status, reply.run?.stdout], ["ok", `${stdin.length}\n`]);
});

test("memory beyond the limit is told with the peak, in files of the call, too", async () => {
  const reply = await sh("dd if=/dev/zero of=/tmp/big bs=1M count=100", { limits: { memoryMiB: 32 } });
  assert.equal(reply.status, "memory-limit");
  assert.ok((reply.run?.peakMemoryBytes ?? 0) > 30 * 1024 * 1024);
});

test("output is cut exactly at its limit", async () => {
  const reply = await sh("yes", { limits: { outputBytes: 1001 } });
  assert.equal(reply.status, "output-limit");
  assert.equal(String(reply.run?.stdout).length, 1001);
  assert.equal(reply.run?.outputCut, true);
  const exact = await sh("printf %01001d 0", { limits: { outputBytes: 1001 } });
  assert.equal(exact.status, "ok");
  assert.equal(exact.run?.outputCut, false);
});

test("long files and inputs arrive as they are, and long outputs come back so", async () => {
  const text = Array.from({ length: 200_000 }, (_, index) => `${index}\n`).join("");
  const reply = await sh("cmp in - && cat in", {
    stdin: text,
    files: { in: text },
    limits: { outputBytes: 10_000_000 },
  });
  assert.equal(reply.status, "ok", String(reply.run?.stderr));
  assert.ok(reply.run?.stdout === text);
});

test("input that nobody reads does not hold a call", async () => {
  const reply = await sh("exec 0<&-; echo done", { stdin: "x".repeat(10_000_000) });
  assert.equal(reply.run?.stdout, "done\n");
});

test("a compiler runs once for the same code, and its refusal is a compile error", async () => {
  const compiles = {
    argv: ["sh", "-c", "grep -q good main.txt && cp main.txt main || { echo bad >&2; exit 1; }"],
    outputs: ["main"],
  };
  addRuntime(node, "compiled", { base: "busybox", source: "main.txt", compile: compiles, run: ["cat", "main"] });
  const first = await invoke({ runtime: "compiled", code: "good" });
  assert.deepEqual([first.status, first.run?.stdout, first.compile?.cached], ["ok", "good", false]);
  assert.equal((await invoke({ runtime: "compiled", code: "good" })).compile?.cached, true);
  const bad = await invoke({ runtime: "compiled", code: "worse" });
  assert.deepEqual([bad.status, bad.compile?.stderr, bad.run], ["compile-error", "bad\n", undefined]);
});

test("tests have a verdict each, and early stop skips the rest", async () => {
  const tests = [
    { stdin: "1", expected: "1" },
    { stdin: "2", expected: "3" },
    { stdin: "1.0000001 x", expected: "1 x", checker: { type: "numbers", tolerance: 1e-6 } },
    { stdin: " a\nb ", expected: "a b", checker: { type: "tokens" } },
    {
      stdin: "q",
      expected: "w",
      checker: { type: "program", runtime: "sh", code: 'grep -q q "$1" && grep -q w "$2" && grep -q q "$3"' },
    },
  ] satisfies InvokeFunction["tests"];
  const all = await sh("cat", { tests });
  assert.deepEqual(verdicts(all), ["accepted", "wrong-answer", "accepted", "accepted", "accepted"]);
  const early = await sh("cat", { tests, stopEarly: true });
  assert.deepEqual(verdicts(early), ["accepted", "wrong-answer", "skipped", "skipped", "skipped"]);
});

test("calls that touch nothing share the rooms of a few keepers, each as a user and with files of its own", async () => {
  const seen = { rooms: new Set<string>(), users: new Set<string>() };
  for (let call = 0; call < 40; call += 1) {
    const { run } = await sh("readlink /proc/self/ns/net; id -u; ls -A /work /tmp; echo x > /tmp/x");
    const [room = "", user = "", ...files] = String(run?.stdout).trim().split("\n");
    assert.deepEqual(files, ["/tmp:", "", "/work:", "main.sh"]);
    seen.rooms.add(room);
    seen.users.add(user);
  }
  assert.equal(seen.users.size, 40);
  // Keepers: as many as this file has had calls at once, and the floor.
  assert.ok(seen.rooms.size < 20, `${seen.rooms.size} rooms`);
});

test("a call that asks for it has a container of its own", async () => {
  assert.equal((await sh("echo alone", { reuse: "never" })).run?.stdout, "alone\n");
});

test("a batch tells of each call, of those that cannot be made, too", async () => {
  const calls = [
    { runtime: "sh", code: "echo 0" },
    { runtime: "none", code: "" },
    { runtime: "sh", code: "echo 2" },
  ];
  const seen = new Map<number, string>();
  for await (const each of node.client.functions.invokeMany(calls)) {
    seen.set(each.index, "result" in each ? String(each.result.run?.stdout) : each.error.kind);
  }
  assert.deepEqual([...seen].sort(), [
    [0, "0\n"],
    [1, "NotFound"],
    [2, "2\n"],
  ]);
});

test("a started call is waited for by its id, by its own project's clients, until it is dropped", async () => {
  const { functions } = node.client;
  const id = await functions.start({ runtime: "sh", code: "sleep 0.2; echo late" });
  assert.equal((await functions.result(id)).run?.stdout, "late\n");
  assert.equal((await functions.result(id)).run?.stdout, "late\n");
  await functions.drop(id);
  await functions.drop(id);
  await assert.rejects(functions.result(id), { kind: "NotFound" });
  await assert.rejects(functions.result("nonsense"), { kind: "NotFound" });
});

test("a call that is given up ends, and its cell with it", async () => {
  const { functions } = node.client;
  const leaver = new AbortController();
  const call = functions.invoke({ runtime: "sh", code: "sleep 1000" }, { signal: leaver.signal });
  const started = await functions.start({ runtime: "sh", code: "sleep 1000" });
  await sh("echo beside");
  leaver.abort(new Error("left"));
  await assert.rejects(call, /left/);
  await functions.drop(started);
  assert.equal((await sh("echo after")).run?.stdout, "after\n");
  assert.doesNotMatch(node.log, /was not clean/);
});

test("nothing of calls is left on the node but its pools", async () => {
  const [view] = await node.client.nodes.list();
  const resources = await node.client.nodes.resources(view?.edge ?? "");
  assert.deepEqual(
    resources.flatMap(({ surplus }) => surplus),
    [],
  );
});

function verdicts({ tests }: FunctionReply) {
  return tests?.map(({ verdict }) => verdict);
}

function pick({ status, run }: FunctionReply) {
  return { status, exitCode: run?.exitCode, signal: run?.signal };
}
