import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Invoker } from "#control/functions/invoker.ts";
import { Watcher } from "#control/watcher/watcher.ts";
import { systemClock } from "#core/clock.ts";
import type { FunctionCall, HeldResult } from "#core/functions.ts";
import type { Node } from "#core/node.ts";
import { waitUntil } from "../support/wait.ts";
import { type FunctionsEdge, functionsEdge, scriptCall } from "./edges.ts";

const LIMIT_MS = 60_000;
/** Long enough to be found at it on a busy machine. */
const HELD_S = 8;
const never = new AbortController().signal;

let edges: readonly FunctionsEdge[];
let remotes: readonly ({ readonly node: Node } & AsyncDisposable)[];
let watcher: Watcher;
let invoker: Invoker;
before(async () => {
  edges = [await functionsEdge(), await functionsEdge()];
  remotes = [await at(edges, 0).remote(), await at(edges, 1).remote()];
  watcher = new Watcher({ clock: systemClock, log: { info: () => {}, warn: () => {}, error: () => {} }, pollMs: 50 });
  for (const { node } of remotes) await watcher.add((await node.info(never)).edge, node);
  invoker = new Invoker(watcher);
});
after(async () => {
  watcher[Symbol.dispose]();
  for (const each of [...remotes, ...edges]) await each[Symbol.asyncDispose]();
});

function at<T>(items: readonly T[], index: number): T {
  const item = items[index];
  assert.ok(item !== undefined);
  return item;
}

const call = (code: string, change?: Partial<FunctionCall>) => scriptCall(at(edges, 0).layers, code, change);

async function busyOf(index: number): Promise<number> {
  const { functions } = await at(edges, index).edge.info(never);
  return (functions?.running ?? 0) + (functions?.queued ?? 0);
}

function textOf({ run }: HeldResult): string {
  return Buffer.from(run?.stdout ?? []).toString();
}

test("calls go to the node whose line is shorter, whoever made it long", async () => {
  const leaver = new AbortController();
  const calls = [1, 2, 3, 4].map(() => invoker.invoke(call("sleep 1000"), leaver.signal).catch(() => "left"));
  await waitUntil("each node has two", LIMIT_MS, async () => (await busyOf(0)) === 2 && (await busyOf(1)) === 2);
  // Another control plane has three more on the first.
  const others = [1, 2, 3].map(() =>
    at(edges, 0)
      .edge.invoke(call("sleep 1000"), leaver.signal)
      .catch(() => "left"),
  );
  const knows = () => watcher.sightings().some(({ info }) => info.functions?.queued === 3);
  await waitUntil("the watcher knows", LIMIT_MS, knows);
  const more = [1, 2].map(() => invoker.invoke(call("sleep 1000"), leaver.signal).catch(() => "left"));
  await waitUntil("the other one has them", LIMIT_MS, async () => (await busyOf(1)) === 4);
  assert.equal(await busyOf(0), 5);
  leaver.abort(new Error("left"));
  assert.ok((await Promise.all([...calls, ...others, ...more])).every((end) => end === "left"));
});

test("what one node has compiled the other one compiles for itself, to the same end", async () => {
  const compile = { argv: ["sh", "-c", "cp main.sh main; cat main.sh >/dev/null"], outputs: ["main"], memoryMiB: 32 };
  const compiled = call("echo made");
  const request = { ...compiled, runtime: { ...compiled.runtime, compile, run: ["sh", "main"] } };
  for (const index of [0, 1]) {
    for (const cached of [false, true]) {
      using result = await at(remotes, index).node.invoke(request, never);
      assert.deepEqual([textOf(result), result.compile?.cached], ["made\n", cached]);
    }
  }
});

test("calls of a node that is lost end on another one; a started one is told lost, and is not run again", async () => {
  const calls = Array.from({ length: 4 }, (_, index) => invoker.invoke(call(`sleep ${HELD_S}; echo ${index}`), never));
  await waitUntil("each node has two", LIMIT_MS, async () => (await busyOf(0)) === 2 && (await busyOf(1)) === 2);
  const started = await at(remotes, 0).node.startInvocation(call("sleep 1000"), never);
  await at(remotes, 0)[Symbol.asyncDispose]();
  const results = await Promise.all(calls);
  assert.deepEqual(results.map(textOf), ["0\n", "1\n", "2\n", "3\n"]);
  const wait = { project: "test", waitMs: LIMIT_MS };
  await assert.rejects(invoker.nodeOf(started).waitInvocation(started, wait, never), { kind: "Unavailable" });
  // The edge itself lives, and has given up what nobody waits for.
  await waitUntil("only the started one is left", LIMIT_MS, async () => (await busyOf(0)) === 1);
  await at(edges, 0).edge.dropInvocation(started, "test", never);
  await waitUntil("it counts as lost", LIMIT_MS, () => watcher.sightings().some(({ lost }) => lost));
  for (let each = 0; each < 3; each += 1) assert.equal(textOf(await invoker.invoke(call("echo on"), never)), "on\n");
  await at(remotes, 1)[Symbol.asyncDispose]();
  await assert.rejects(invoker.invoke(call("echo none"), never), { kind: "Unavailable" });
});
