import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { containerRig, TEST_CONFIG } from "./test-support/rig.ts";

const soon = () => AbortSignal.timeout(30_000);
const OPTIONS = { exclude: [], keep: [], consistent: true } as const;

test("where uppers are plain directories a sandbox is held still until it is packed, and nothing can be copied", async () => {
  await using rig = await containerRig({ config: { ...TEST_CONFIG, volumeSize: 0 } });
  const spec = rig.spec({ resources: { ...rig.spec().resources, diskMiB: undefined } });
  await rig.backend.create(spec, { slot: 1 }, soon());
  const upper = join(rig.options.dataDir, "uppers", spec.id, "upper");
  mkdirSync(join(upper, "made"));
  writeFileSync(join(upper, "made/file"), "12345");
  const { packing, copying } = rig.backend;
  assert.ok(packing !== undefined && copying !== undefined);
  assert.equal(copying.copies, false);
  const packed = await packing.pack(spec, OPTIONS, soon());
  assert.deepEqual([packed.entries, packed.dataBytes, packed.frozenMs > 0], [2, 5, true]);
  assert.equal((await packing.pack(spec, { ...OPTIONS, consistent: false }, soon())).layer, packed.layer);
  await assert.rejects(copying.copy(spec, { to: [rig.spec().id] }, soon()), { kind: "FailedPrecondition" });
});

test("a copy that fails half-way leaves none", async () => {
  await using rig = await containerRig();
  const [spec, first, taken] = [rig.spec(), rig.spec(), rig.spec()];
  await rig.backend.create(spec, { slot: 1 }, soon());
  await rig.backend.create(taken, { slot: 2 }, soon());
  const copying = rig.backend.copying?.copy(spec, { to: [first.id, taken.id] }, soon());
  await assert.rejects(copying ?? Promise.resolve(), { kind: "AlreadyExists" });
  assert.deepEqual((await rig.backend.inventory()).uppers, new Set([spec.id, taken.id]));
});

test("a chain of forty packs stays below what an edge takes, and its end still has all of it", async () => {
  await using rig = await containerRig();
  let spec = rig.spec();
  await rig.backend.create(spec, { slot: 1 }, soon());
  const upper = join(rig.options.runDir, "volume", spec.id, "upper");
  for (let link = 0; link < 40; link += 1) {
    writeFileSync(join(upper, `file-${link}`), String(link));
    const packed = await rig.backend.packing?.pack(spec, OPTIONS, AbortSignal.timeout(60_000));
    spec = { ...spec, layers: packed?.layers ?? [] };
    assert.ok(spec.layers.length <= 32, `${spec.layers.length} layers`);
  }
  const last = { ...rig.spec(), layers: spec.layers };
  await rig.backend.create(last, { slot: 2 }, soon());
  const packed = await rig.backend.packing?.pack(last, OPTIONS, soon());
  assert.equal(packed?.entries, 0);
});
