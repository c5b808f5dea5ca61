import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { after, before, test } from "node:test";
import { startNode, type TestNode } from "../support/node.ts";
import { addShell } from "./support.ts";

/** As many as run at once on this machine: see `backends/fncall/config.ts`. */
const RUNNING = 4 * availableParallelism();
const WAITS = { runtime: "sh", code: "sleep 1000", limits: { runMs: 600_000, memoryMiB: 8 } } as const;

let node: TestNode;
before(async () => {
  node = await startNode({ words: ["--function-queue=1"] });
  await addShell(node);
});
after(() => node[Symbol.asyncDispose]());

test("a full node answers at once when to come again; deadlines count while a call waits; then all goes on", async () => {
  const { functions } = node.client;
  const running = await Promise.all(Array.from({ length: RUNNING }, () => functions.start(WAITS)));
  const queued = await functions.start(WAITS);

  const headers = { authorization: `Bearer ${node.token}`, "content-type": "application/json" };
  const body = JSON.stringify({ runtime: "sh", code: "echo late" });
  const refused = await fetch(`${node.url}/v1/functions`, { method: "POST", headers, body });
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get("retry-after")) >= 1, String(refused.headers.get("retry-after")));
  const { error } = (await refused.json()) as { readonly error: { readonly kind: string; readonly hint: string } };
  assert.equal(error.kind, "Overloaded");
  assert.match(error.hint, /Retry-After/);

  await functions.drop(queued);
  // Its place in the line is free: this one waits there, for longer than it may.
  await assert.rejects(functions.invoke({ runtime: "sh", code: "echo late" }, { timeoutMs: 500 }), {
    kind: "DeadlineExceeded",
  });
  await Promise.all(running.map((id) => functions.drop(id)));
  assert.equal((await functions.invoke({ runtime: "sh", code: "echo again" })).run?.stdout, "again\n");
});
