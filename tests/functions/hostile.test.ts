import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { FunctionReply } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { compileProgram } from "../support/sandbox.ts";
import { addShell } from "./support.ts";

const WORK = "/work";
/** What a call can do without harm: in its own place. The rest of what it tries must not work at all. */
const OWN = [
  "wrote /tmp/left-behind",
  "wrote /var/tmp/left-behind",
  `wrote ${WORK}/left-behind`,
  "wrote /dev/shm/left-behind",
  "wrote /dev/mqueue/left-behind",
  "made shared memory",
  "made a semaphore",
  "made a message queue",
  "made a shared file",
  "made a POSIX queue",
  "listens on an abstract name",
  "listens on a port",
  "sent to itself",
  "used up inotify",
  "left",
];

let node: TestNode;
let program: { readonly base64: string };
before(async () => {
  const source = join(import.meta.dirname, "testdata/hostile.c");
  program = { base64: compileProgram(source).toString("base64") };
  node = await startNode();
  await addShell(node);
});
after(() => node[Symbol.asyncDispose]());

const call = (what: "leave" | "look"): Promise<FunctionReply> =>
  node.client.functions.invoke({
    runtime: "sh",
    command: ["./hostile", what],
    files: { hostile: program },
    limits: { pids: 32, memoryMiB: 64 },
  });

test("a call reaches nothing but what is its own", async () => {
  const lines = linesOf(await call("leave"));
  assert.deepEqual(
    lines.filter((line) => !OWN.includes(line)),
    [],
  );
  assert.ok(lines.includes("used up inotify") && lines.includes("left"), lines.join("\n"));
});

test("of what a call leaves, the next callers find nothing: files, shm, IPC, queues, sockets, keys, daemons, inotify", async () => {
  for (let round = 0; round < 5; round += 1) {
    assert.equal(linesOf(await call("leave")).at(-1), "left");
    assert.deepEqual(linesOf(await call("look")), ["looked"]);
  }
});

test("calls at the same time find nothing of each other", async () => {
  const calls = Array.from({ length: 24 }, (_, index) => call(index % 2 === 0 ? "leave" : "look"));
  for (const [index, reply] of (await Promise.all(calls)).entries()) {
    if (index % 2 === 1) assert.deepEqual(linesOf(reply), ["looked"]);
  }
});

test("the containers of hostile calls stay clean, and go on being used", async () => {
  const [view] = await node.client.nodes.list();
  const processes = (await node.client.nodes.resources(view?.edge ?? "")).find((each) => each.class === "processes");
  assert.deepEqual([processes?.expected, processes?.found, processes?.surplus], [1, 1, []]);
  assert.doesNotMatch(node.log, /was not clean/);
});

function linesOf({ status, run, message }: FunctionReply): readonly string[] {
  assert.equal(status, "ok", `${message} ${run?.signal} ${String(run?.stderr)}`);
  return String(run?.stdout).trim().split("\n");
}
