import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Handle } from "#core/backend.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { run } from "#core/suites/backend-suite.ts";
import { type ContainerRig, containerRig } from "./test-support/rig.ts";

const soon = () => AbortSignal.timeout(30_000);

let rig: ContainerRig;
before(async () => {
  rig = await containerRig();
  // Its own launcher must not be there: another process is the node now.
  await rig.backend[Symbol.asyncDispose]();
});
after(() => rig[Symbol.asyncDispose]());

test("sandboxes survive kill -9 of their node, and the next one reaches their agents", async () => {
  const specs = [rig.spec(), rig.spec(), rig.spec()];
  const node = startNode(specs);
  const handles: Handle[] = [];
  for await (const line of linesOf(node)) if (handles.push(JSON.parse(line)) === specs.length) break;
  await killNode(node);

  const backend = await rig.restart();
  for (const handle of handles) {
    assert.deepEqual(await backend.recover(handle), handle);
    const link = await backend.connect(handle, soon());
    assert.deepEqual(await run(link, ["echo", "alive"]), { stdout: "alive\n", code: 0 });
    link.close();
  }
  await Promise.all(handles.map(({ id }) => backend.destroy(id)));
  assert.ok(Object.values(await backend.inventory()).every((ids) => ids.size === 0));
  await backend[Symbol.asyncDispose]();
});

test("a node killed in the middle of many creates leaves only what inventory finds and destroy removes", async () => {
  for (const handlesSeen of [1, 5]) {
    const specs = Array.from({ length: 24 }, () => rig.spec());
    const node = startNode(specs);
    let seen = 0;
    for await (const _ of linesOf(node)) if (++seen === handlesSeen) break;
    await killNode(node);

    const backend = await rig.restart();
    const found = new Set(Object.values(await backend.inventory()).flatMap((ids) => [...ids]));
    assert.ok(found.size >= handlesSeen);
    const known = new Set<string>(specs.map(({ id }) => id));
    assert.ok([...found].every((id) => known.has(id)));
    await Promise.all([...found].map((id) => backend.destroy(id as SandboxSpec["id"])));
    assert.ok(Object.values(await backend.inventory()).every((ids) => ids.size === 0));
    await backend[Symbol.asyncDispose]();
  }
  await rig.restart();
});

function startNode(specs: readonly SandboxSpec[]): ChildProcess {
  const { store: _t, supply: _s, mounts: _m, log: _l, ...options } = rig.options;
  const task = { options, storeDir: join(rig.root, "store"), specs };
  const program = fileURLToPath(new URL("./test-support/node.ts", import.meta.url));
  return spawn(process.execPath, [program, JSON.stringify(task)], { stdio: ["ignore", "pipe", "inherit"] });
}

function linesOf(node: ChildProcess): AsyncIterable<string> {
  if (node.stdout === null) throw new Error("the node has no output");
  return createInterface({ input: node.stdout });
}

async function killNode(node: ChildProcess): Promise<void> {
  const exit = once(node, "exit");
  node.kill("SIGKILL");
  await exit;
}
