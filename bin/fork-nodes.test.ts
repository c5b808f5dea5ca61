import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { checkForkSettings, forkNodesOf } from "./fork-nodes.ts";

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
