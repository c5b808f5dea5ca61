import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";

/** The promises of `Node` about packing. `ready` makes a sandbox that has written nothing yet, on a node that is made for the test. */
export function packingOfNode(ready: () => Promise<{ readonly node: Node; readonly id: SandboxId }>): void {
  const soon = () => AbortSignal.timeout(30_000);
  const options = { exclude: [], keep: [], consistent: true };

  test("a pack has the sandbox's layers and one more, and the sandbox goes on", async () => {
    const { node, id } = await ready();
    const { layers } = (await node.inspect(id, soon())).spec;
    const before = await node.packDiff(id, options, soon());
    assert.deepEqual(before.layers, [...layers, before.layer]);
    const write = { path: Buffer.from("/packed"), mode: 0o644, parents: false, user: undefined };
    await node.writeFile(id, write, once("some bytes"), soon());
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

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
