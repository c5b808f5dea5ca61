import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULT_RESOURCES } from "#core/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { functionsEdge, scriptCall } from "./edges.ts";

const LIMIT_MS = 60_000;
const never = new AbortController().signal;
/** A container of functions has 512 MiB here: those of its calls, and what they write. */
const NODE_MIB = 600;

async function containersOf(edge: Awaited<ReturnType<typeof functionsEdge>>["edge"]): Promise<number> {
  const processes = (await edge.resources(never)).find((each) => each.class === "processes");
  return Number(processes?.found);
}

test("a pool gives way to a sandbox, calls are refused while there is no room, and come back", async () => {
  await using made = await functionsEdge({ memoryMiB: NODE_MIB });
  const { edge, layers, spec } = made;
  const call = scriptCall(layers, "echo ran");
  (await edge.invoke(call, never))[Symbol.dispose]();
  assert.equal(await containersOf(edge), 1);
  const sandbox = spec({ resources: { ...DEFAULT_RESOURCES, memoryMiB: 400, diskMiB: 16 } });
  await edge.create(sandbox, never);
  assert.equal(await containersOf(edge), 1);
  await assert.rejects(edge.invoke(call, never), { kind: "NodeFull" });
  await edge.destroy(sandbox.id, never);
  using again = await edge.invoke(call, never);
  assert.equal(again.status, "ok");
  // One that has a call does not.
  const id = await edge.startInvocation(scriptCall(layers, "sleep 1000"), never);
  await waitUntil("the call runs", LIMIT_MS, async () => (await edge.info(never)).functions?.running === 1);
  await assert.rejects(edge.create(spec({ resources: sandbox.resources }), never), { kind: "NodeFull" });
  await edge.dropInvocation(id, "test", never);
});

test("pools that nobody uses are given back when the node is short of memory, and calls go on when it is not", async () => {
  let availableMiB = 1_000_000;
  await using made = await functionsEdge({ availableMemoryMiB: () => availableMiB });
  const { edge, layers } = made;
  const call = scriptCall(layers, "echo ran");
  (await edge.invoke(call, never))[Symbol.dispose]();
  const held = await edge.startInvocation(scriptCall(layers, "sleep 1000"), never);
  availableMiB = 0;
  await edge.dropInvocation(held, "test", never);
  await waitUntil("the pool is gone", LIMIT_MS, async () => (await containersOf(edge)) === 0);
  await assert.rejects(edge.invoke(call, never), { kind: "NodeFull" });
  availableMiB = 1_000_000;
  using again = await edge.invoke(call, never);
  assert.equal(again.status, "ok");
});
