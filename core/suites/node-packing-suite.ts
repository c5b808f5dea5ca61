import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { SandboxSpec } from "#core/sandbox.ts";

const soon = () => AbortSignal.timeout(30_000);
const NEVER = { snapshot: "never" } as const;
const FILE = { mode: 0o644, parents: false, user: undefined };

/** The promises of `Node` about packing. `ready` makes a sandbox that has written nothing yet, on a node that is made for the test. */
export function packingOfNode(ready: () => Promise<{ readonly node: Node; readonly id: SandboxId }>): void {
  const options = { exclude: [], keep: [], consistent: true };

  test("a pack has the sandbox's layers and one more, and the sandbox goes on", async () => {
    const { node, id } = await ready();
    const { layers } = (await node.inspect(id, soon())).spec;
    const before = await node.packDiff(id, options, soon());
    assert.deepEqual(before.layers, [...layers, before.layer]);
    await node.writeFile(id, { ...FILE, path: Buffer.from("/packed") }, once("some bytes"), soon());
    const after = await node.packDiff(id, options, soon());
    assert.deepEqual([after.entries, after.dataBytes], [before.entries + 1, before.dataBytes + 10]);
    assert.notEqual(after.layer, before.layer);
    assert.equal((await node.inspect(id, soon())).state, "ready");
    const without = await node.packDiff(id, { ...options, exclude: ["packed"] }, soon());
    assert.deepEqual([without.entries, without.skipped.excluded], [before.entries, 1]);
  });

  test("a pack of what is not there, with bad options, or that nobody waits for is refused", async () => {
    const { node, id } = await ready();
    const refuse = (change: object, field: string) =>
      assert.rejects(node.packDiff(id, { ...options, ...change }, soon()), {
        kind: "InvalidArgument",
        details: { field },
      });
    await refuse({ exclude: "x" }, "exclude");
    await refuse({ keep: ["nothing"] }, "keep");
    await refuse({ consistent: "yes" }, "consistent");
    await assert.rejects(node.packDiff(id, options, AbortSignal.abort()));
    await node.destroy(id, soon());
    await assert.rejects(node.packDiff(id, options, soon()), { kind: "NotFound" });
  });
}

/** The promises of `Node` about forks. `rig` has the node and makes specs of sandboxes that it takes. */
export function forksOfNode(rig: () => { readonly node: Node; spec(): SandboxSpec }): void {
  test("forks have what the sandbox wrote, its spec but for id and labels, and its name as parent; repeats find them", async () => {
    const { node } = rig();
    const parent = rig().spec();
    await node.create(parent, soon());
    await node.writeFile(parent.id, { ...FILE, path: Buffer.from("/forked") }, once("some bytes"), soon());
    const children = [1, 2].map((n) => ({ id: rig().spec().id, labels: { n: String(n) } }));
    const { outcomes } = await node.fork(parent.id, children, NEVER, soon());
    assert.deepEqual(outcomes, [{}, {}]);
    for (const { id, labels } of children) {
      const { spec, state } = await node.inspect(id, soon());
      assert.deepEqual([state, spec.parent, spec.labels], ["ready", parent.id, { ...parent.labels, ...labels }]);
      assert.equal(JSON.stringify([spec.layers, spec.resources]), JSON.stringify([parent.layers, parent.resources]));
      assert.equal((await node.stat(id, { path: Buffer.from("/forked"), user: undefined }, soon())).size, 10);
    }
    assert.deepEqual((await node.fork(parent.id, children, NEVER, soon())).outcomes, [{}, {}]);
    assert.equal((await node.list({}, soon())).length, 3);
  });

  test("bad children, and a sandbox that is not there, are refused; one that exists as another is told apart", async () => {
    const { node } = rig();
    const [parent, other] = [rig().spec(), rig().spec()];
    await node.create(parent, soon());
    await node.create(other, soon());
    const child = { id: rig().spec().id, labels: {} };
    for (const children of [[], [child, child], Array.from({ length: 257 }, () => child)]) {
      await assert.rejects(node.fork(parent.id, children, NEVER, soon()), { kind: "InvalidArgument" });
    }
    const { outcomes } = await node.fork(parent.id, [{ id: other.id, labels: {} }], NEVER, soon());
    assert.deepEqual(
      outcomes.map(({ error }) => error?.kind),
      ["AlreadyExists"],
    );
    await assert.rejects(node.fork(child.id, [child], NEVER, soon()), { kind: "NotFound" });
  });
}

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
