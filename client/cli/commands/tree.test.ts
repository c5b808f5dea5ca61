import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxView } from "#sdk";
import { growTree } from "./tree.ts";

/** Only what a tree is grown from. */
function view(id: string, parent?: string): SandboxView {
  const given = { id, ...(parent === undefined ? {} : { parent }) };
  return {
    ...given,
    edge: "e",
    project: "p",
    backend: "container",
    state: "ready",
    generation: 1,
    createdAtMs: 0,
    lastActivityAtMs: 0,
    runningCommands: 0,
    base: "b",
    toolkits: [],
    resources: { cpus: 1, memoryMiB: 1, swapMiB: 0, pids: 1 },
    env: {},
    user: "root",
    workdir: "/",
    hostname: id,
    rlimits: {},
    labels: {},
  };
}

const VIEWS = [view("a"), view("b", "a"), view("c", "b"), view("d", "a"), view("e"), view("f", "gone")];
const shapeOf = (branches: ReturnType<typeof growTree>): unknown =>
  branches.map(({ sandbox, forks }) => (forks.length === 0 ? sandbox.id : [sandbox.id, shapeOf(forks)]));

test("sandboxes stand below their parents, and those whose parent is gone at the top", () => {
  assert.deepEqual(shapeOf(growTree(VIEWS, undefined)), [["a", [["b", ["c"]], "d"]], "e", "f"]);
});

test("one id picks the whole tree that it is in", () => {
  assert.deepEqual(shapeOf(growTree(VIEWS, "c")), [["a", [["b", ["c"]], "d"]]]);
  assert.deepEqual(shapeOf(growTree(VIEWS, "f")), ["f"]);
  assert.throws(() => growTree(VIEWS, "gone"), { kind: "NotFound" });
});
