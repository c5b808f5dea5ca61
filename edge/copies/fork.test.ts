import assert from "node:assert/strict";
import { test } from "node:test";
import { failing } from "#backends/fake/config.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { never, Rig, type RigOptions } from "../test-support/rig.ts";

/** An edge with room for one sandbox beside the parent, and what it shared. */
async function rigWithParent(options: RigOptions = {}) {
  const shared: (readonly LayerDigest[])[] = [];
  const share = async (layers: readonly LayerDigest[]) => {
    shared.push(layers);
  };
  const rig = await Rig.open({
    config: { capacity: { cpus: 64, memoryMiB: 65_536, sandboxes: 2 } },
    share,
    ...options,
  });
  const parent = aFakeSpec();
  await rig.edge.create(parent, never);
  return { rig, parent, shared };
}

const children = (count: number) => Array.from({ length: count }, () => ({ id: aFakeSpec().id, labels: {} }));

test("children without room leave layers of the instant in the store, and the others are ready", async () => {
  const { rig, parent, shared } = await rigWithParent();
  await using _ = rig;
  const { outcomes, snapshot } = await rig.edge.fork(parent.id, children(2), { snapshot: "if-full" }, never);
  assert.deepEqual(
    outcomes.map(({ error }) => error?.kind),
    [undefined, "NodeFull"],
  );
  assert.ok(snapshot !== undefined && "layers" in snapshot);
  assert.deepEqual([shared, snapshot.layers.slice(0, -1)], [[snapshot.layers], parent.layers]);
});

test("nothing is packed while there is room, or when no others take forks", async () => {
  const { rig, parent, shared } = await rigWithParent();
  await using _ = rig;
  const [first, second] = children(2);
  assert.ok(first !== undefined && second !== undefined);
  assert.equal((await rig.edge.fork(parent.id, [first], { snapshot: "if-full" }, never)).snapshot, undefined);
  assert.equal((await rig.edge.fork(parent.id, [first, second], { snapshot: "never" }, never)).snapshot, undefined);
  assert.deepEqual(shared, []);
});

test("a snapshot alone is made of no children, and a fork of none without it is refused", async () => {
  const { rig, parent, shared } = await rigWithParent();
  await using _ = rig;
  const { outcomes } = await rig.edge.fork(parent.id, [], { snapshot: "always" }, never);
  assert.deepEqual([outcomes, shared.length], [[], 1]);
  await assert.rejects(rig.edge.fork(parent.id, [], { snapshot: "if-full" }, never), { kind: "InvalidArgument" });
  const unknown = { snapshot: "sometimes" as "always" };
  await assert.rejects(rig.edge.fork(parent.id, [], unknown, never), { details: { field: "snapshot" } });
});

for (const [what, options, kind] of [
  ["no store", { share: undefined }, "FailedPrecondition"],
  ["a store that fails", { share: () => Promise.reject(new SandboxError("Unavailable", "no answer")) }, "Unavailable"],
  ["a pack that fails", { script: failing("pack", 1, () => new SandboxError("StorageFull", "no")) }, "StorageFull"],
] as const) {
  test(`with ${what} the snapshot fails by its kind, and children that had room are ready`, async () => {
    const { rig, parent } = await rigWithParent(options);
    await using _ = rig;
    const { outcomes, snapshot } = await rig.edge.fork(parent.id, children(2), { snapshot: "if-full" }, never);
    assert.ok(snapshot !== undefined && "error" in snapshot);
    assert.deepEqual([outcomes[0], outcomes[1]?.error?.kind, snapshot.error.kind], [{}, "NodeFull", kind]);
  });
}

test("the removal of the parent ends a snapshot that is on its way", async () => {
  const reached = Promise.withResolvers<void>();
  const share = (_: unknown, signal: AbortSignal) => {
    reached.resolve();
    return new Promise<void>((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const { rig, parent } = await rigWithParent({ share });
  await using _ = rig;
  const forking = rig.edge.fork(parent.id, [], { snapshot: "always" }, never);
  await reached.promise;
  await rig.edge.destroy(parent.id, never);
  const { snapshot } = await forking;
  assert.ok(snapshot !== undefined && "error" in snapshot);
});
