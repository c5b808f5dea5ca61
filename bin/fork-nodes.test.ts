import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Watcher } from "#control/watcher/watcher.ts";
import { systemClock } from "#core/clock.ts";
import { parseEdgeId } from "#core/ids.ts";
import type { Node, NodeInfo } from "#core/node.ts";
import { listenNode } from "#edge/listen.ts";
import { checkForkSettings, forkNodesOf, joinForkNodes } from "./fork-nodes.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-fork-nodes-"));
after(() => rmSync(root, { recursive: true, force: true }));

const NONE = { edge: "one", forkListen: undefined, forkNodes: "", nodeToken: undefined };

test("nodes that take forks are named by edge and address", () => {
  const forkNodes = "two=192.0.2.2:7434, three=[fd00::3]:80,";
  assert.deepEqual(forkNodesOf({ ...NONE, forkNodes }), [
    { edge: "two", host: "192.0.2.2", port: 7434 },
    { edge: "three", host: "fd00::3", port: 80 },
  ]);
  assert.deepEqual(forkNodesOf(NONE), []);
  for (const wrong of ["two", "two=host", "Two=host:1", "=host:1", "two=host:1,two=other:1", "one=host:1"]) {
    assert.throws(() => forkNodesOf({ ...NONE, forkNodes: wrong }), { kind: "InvalidArgument" }, wrong);
  }
});

test("they need a secret that is long enough and that nobody else can read", () => {
  const nodeToken = join(root, "token");
  checkForkSettings(NONE);
  const refused = (message: RegExp) => {
    for (const settings of [{ forkListen: "127.0.0.1:0" }, { forkNodes: "two=127.0.0.1:1" }]) {
      assert.throws(() => checkForkSettings({ ...NONE, nodeToken, ...settings }), { kind: "InvalidArgument", message });
    }
  };
  assert.throws(() => checkForkSettings({ ...NONE, forkListen: "127.0.0.1:0" }), { message: /is needed/ });
  assert.throws(() => checkForkSettings({ ...NONE, nodeToken }), { kind: "InvalidArgument", message: /without/ });
  refused(/cannot be read/);
  writeFileSync(nodeToken, "short", { mode: 0o600 });
  refused(/no such secret/);
  writeFileSync(nodeToken, `${"x".repeat(20)} ${"y".repeat(20)}`);
  refused(/no such secret/);
  writeFileSync(nodeToken, `${"x".repeat(32)}\n`);
  checkForkSettings({ ...NONE, nodeToken, forkListen: "127.0.0.1:0" });
  chmodSync(nodeToken, 0o640);
  refused(/read by others/);
  assert.throws(() => checkForkSettings({ ...NONE, nodeToken, forkListen: "nowhere" }), { message: /--fork-listen/ });
});

test("another node at the place of one is not taken for it, whoever led there", async () => {
  const token = "y".repeat(32);
  const nodeToken = join(root, "both");
  writeFileSync(nodeToken, token, { mode: 0o600 });
  const info: Node["info"] = async () => ({ edge: parseEdgeId("c") }) as NodeInfo;
  const other: Partial<Node> = { info };
  await using listener = await listenNode(other as Node, { host: "127.0.0.1", port: 0, token, sealed: true });
  const { host } = new URL(listener.url);
  const warned = Promise.withResolvers<unknown>();
  const log = { info: () => warned.reject(new Error("taken")), warn: (facts: unknown) => warned.resolve(facts) };
  const silent = { info: () => {}, warn: () => {}, error: () => {} };
  using watcher = new Watcher({ clock: systemClock, log: silent });
  await using _ = await joinForkNodes({ watcher }, { ...NONE, nodeToken, forkNodes: `b=${host}` }, log);
  const { err } = (await warned.promise) as { err: Error };
  assert.match(err.message, /there is c, not b/);
  const named = watcher.node(parseEdgeId("b"));
  await assert.rejects(named.info(AbortSignal.timeout(10_000)), { kind: "Unavailable" });
});
