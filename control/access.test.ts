import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#core/clock.ts";
import { newSandboxId, parseEdgeId, type SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { Access } from "./access.ts";
import type { Principal } from "./iam/iam.ts";
import { named, plan } from "./spec.ts";
import { SILENT, TestNode } from "./test-support/test-node.ts";
import { Watcher } from "./watcher/watcher.ts";

const ADMIN: Principal = { name: "root", project: "default", role: "admin" };
const MEMBER: Principal = { name: "m", project: "a", role: "member" };
const STRANGER: Principal = { name: "s", project: "b", role: "member" };
const SIGNAL = new AbortController().signal;

async function made() {
  const node = new TestNode("n1");
  const watcher = new Watcher({ clock: systemClock, log: SILENT });
  await watcher.add(node.edge, node);
  const id = newSandboxId(node.edge);
  await node.create(specOf(id), SIGNAL);
  return { node, id, access: new Access(watcher), [Symbol.dispose]: () => watcher[Symbol.dispose]() };
}

function specOf(id: SandboxId): SandboxSpec {
  const environment = { layers: [], config: { env: {}, user: undefined, workdir: undefined } };
  return named(plan({ base: "b" }, environment, { project: "a", backend: "container" }), id);
}

test("the node is asked for a sandbox's project once, and never for an admin", async () => {
  using set = await made();
  const { node, id, access } = set;
  const questions = () => node.calls.filter((name) => name === "inspect").length;
  assert.equal((await access.reach(ADMIN, id, SIGNAL)).node, node);
  assert.equal(questions(), 0);
  for (let n = 0; n < 3; n++) assert.equal((await access.reach(MEMBER, id, SIGNAL)).id, id);
  assert.equal(questions(), 1);
  await assert.rejects(access.reach(STRANGER, id, SIGNAL), { kind: "NotFound" });
  assert.equal(questions(), 1);
});

test("a sandbox of others, one that never was, and one of an unknown node are told apart by nobody", async () => {
  using set = await made();
  const { id, access } = set;
  const others = [id, newSandboxId(parseEdgeId("n1")), newSandboxId(parseEdgeId("gone"))];
  for (const text of others) {
    await assert.rejects(access.reach(STRANGER, text, SIGNAL), { kind: "NotFound", message: `no sandbox ${text}` });
  }
});

test("what is remembered is bounded, and what was forgotten is asked again", async () => {
  using set = await made();
  const { node, id, access } = set;
  access.remember(id, "a");
  for (let n = 0; n < 70_000; n++) access.remember(`sn1-${String(n).padStart(16, "0")}` as SandboxId, "b");
  await access.reach(MEMBER, id, SIGNAL);
  assert.equal(node.calls.filter((name) => name === "inspect").length, 1);
});
