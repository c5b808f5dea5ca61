import assert from "node:assert/strict";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { REGION_STEP_BYTES } from "#host/vmm/vmm.ts";
import type { LayerFile } from "#images/layers/mounts.ts";
import { LayerRegions, regionNotesMiB } from "./regions.ts";

const GIB = 1024 ** 3;

describe("layers as regions of a machine's memory", () => {
  let root: string;
  let dir: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), "dsec-regions-"));
    dir = join(root, "regions");
  });
  afterEach(() => rmSync(root, { recursive: true }));

  function file(name: string, change: Partial<LayerFile> = {}): LayerFile {
    const path = join(root, name);
    writeFileSync(path, name.repeat(1_000));
    return { path, name, sizeBytes: statSync(path).size, isWhole: true, ...change };
  }

  test("layers fit that are all here, and not too large or too many for a guest", async () => {
    const regions = await LayerRegions.open(dir, () => 8 * GIB);
    assert.ok(regions.fits([[file("a"), file("b")], [file("c")]]));
    assert.ok(!regions.fits([[file("a")], [file("b", { isWhole: false })]]));
    assert.ok(regions.fits([[file("a", { sizeBytes: 2 * GIB - REGION_STEP_BYTES })], [file("b")]]));
    assert.ok(!regions.fits([[file("a", { sizeBytes: 2 * GIB })], [file("b")]]));
    assert.ok(!regions.fits([Array.from({ length: 216 }, (_, number) => file(`${number}`))]));
    assert.ok(!(await LayerRegions.open(undefined)).fits([[file("a")]]));
  });

  test("copies that are not there yet leave most of the room to the disks of sandboxes", async () => {
    let freeBytes = 8 * REGION_STEP_BYTES;
    const regions = await LayerRegions.open(dir, () => freeBytes);
    const layers = [[file("a"), file("b")]];
    assert.ok(!regions.fits([[...(layers[0] ?? []), file("c")]]));
    assert.ok(regions.fits(layers));
    await regions.make(layers);
    freeBytes = 0;
    assert.ok(regions.fits(layers), "nothing more is taken");
    assert.ok(!regions.fits([[file("c")]]));
    assert.ok((await LayerRegions.open(dir)).fits([[file("c")]]), "as much as there is here");
  });

  test("a file is one region however many layers have it, named in the order of its devices", async () => {
    const plan = (await LayerRegions.open(dir)).plan(
      [
        [file("a"), file("b")],
        [file("c"), file("b")],
      ],
      "/upper",
    );
    assert.deepEqual(plan.layers, [
      ["pmem0", "pmem1"],
      ["pmem2", "pmem1"],
    ]);
    assert.deepEqual(plan.disks, [{ serial: plan.upper, file: "/upper", access: "write" }]);
    assert.deepEqual(
      plan.regions,
      ["a", "b", "c"].map((name) => ({ file: join(dir, name), sizeBytes: REGION_STEP_BYTES })),
    );
  });

  test("a copy is the file and zeros up to a step, made once; one that was cut short is made again", async () => {
    const regions = await LayerRegions.open(dir);
    const layers = [[file("a"), file("b", { sizeBytes: REGION_STEP_BYTES + 1 })]];
    truncateSync(join(root, "b"), REGION_STEP_BYTES + 1);
    await Promise.all([regions.make(layers), regions.make(layers)]);
    assert.deepEqual(readdirSync(dir).sort(), ["a", "b"]);
    const copy = readFileSync(join(dir, "a"));
    assert.equal(copy.length, REGION_STEP_BYTES);
    assert.equal(copy.toString("latin1").replace(/\0+$/, ""), "a".repeat(1_000));
    assert.equal(statSync(join(dir, "b")).size, 2 * REGION_STEP_BYTES);
    const { ino } = statSync(join(dir, "b"));
    truncateSync(join(dir, "a"), 10);
    await regions.make(layers);
    assert.ok(readFileSync(join(dir, "a")).equals(copy));
    assert.equal(statSync(join(dir, "b")).ino, ino);
  });

  test("what is not all here is read to its end, and nothing is left of a copy that failed", async () => {
    const regions = await LayerRegions.open(dir);
    await assert.rejects(regions.make([[file("a", { isWhole: false, sizeBytes: 1_001 })]]), /a ends at 1000 of 1001/);
    await assert.rejects(regions.make([[{ ...file("b"), path: join(root, "none") }]]), { code: "ENOENT" });
    assert.deepEqual(readdirSync(dir), []);
    const large = file("c", { isWhole: false, sizeBytes: REGION_STEP_BYTES + 1 });
    writeFileSync(large.path, "c".repeat(REGION_STEP_BYTES + 1));
    await regions.make([[large]]);
    const copy = readFileSync(join(dir, "c"));
    assert.equal(copy.length, 2 * REGION_STEP_BYTES);
    assert.equal(copy.toString("latin1").replace(/\0+$/, ""), "c".repeat(REGION_STEP_BYTES + 1));
  });

  test("copies that no template names go when nobody has asked for them lately", async () => {
    const regions = await LayerRegions.open(dir);
    await regions.make([["a", "b", "c"].map((name) => file(name))]);
    for (const name of ["a", "b"]) utimesSync(join(dir, name), 0, 0);
    regions.keep(new Set(["a"]));
    assert.deepEqual(readdirSync(dir).sort(), ["a", "c"]);
  });

  test("a guest has as much more memory as its kernel notes about its regions", () => {
    assert.equal(regionNotesMiB([]), 0);
    assert.equal(regionNotesMiB([{ sizeBytes: REGION_STEP_BYTES }]), 2);
    assert.equal(regionNotesMiB([{ sizeBytes: GIB }, { sizeBytes: GIB }]), 32);
  });
});
