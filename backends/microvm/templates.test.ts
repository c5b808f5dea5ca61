import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { guestImage } from "#host/vmm/guest/image.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { type TemplateParts, Templates } from "./templates.ts";

const BUILD = join(import.meta.dirname, "../../.build");
const SHAPE = { memoryMiB: 128, processors: 1, disks: 8, regions: [] };

describe("templates of machines", () => {
  let root: string;
  let parts: TemplateParts;
  before(async () => {
    root = mkdtempSync(join(tmpdir(), "dsec-vm-"));
    const programs = {
      agent: join(BUILD, "dsec-agent"),
      cradle: join(BUILD, "dsec-cradle"),
      shell: "/bin/bash-static",
    };
    parts = {
      vmm: await openQemu(),
      image: await guestImage(join(BUILD, "guest"), programs),
      accelerator: "tcg",
      lender: undefined,
      dir: join(root, "templates"),
      nearDir: join(root, "near"),
      place: { dir: join(root, "run"), uid: 0x0800_0000, cgroups: [] },
    };
  });
  after(() => rmSync(root, { recursive: true }));

  test("a fifth of concurrent creations fail: one is made once however many ask, and stays", async () => {
    const templates = await Templates.open(parts);
    const machines = await Promise.all([1, 2, 3].map(() => templates.machine(SHAPE)));
    assert.equal(new Set(machines.map(({ devices }) => devices)).size, 1);
    assert.equal(readdirSync(parts.dir).length, 1);
    const again = await (await Templates.open(parts)).machine(SHAPE);
    assert.equal(again.devices, machines[0]?.devices);
    assert.ok(existsSync(again.devices ?? "") && existsSync(again.memory.file?.path ?? ""));
    assert.deepEqual(readdirSync(parts.place.dir), [], "nothing is left where it was booted");
  });

  test("another shape or image asks for another template; a guest that does not boot leaves none", async () => {
    const templates = await Templates.open({
      ...parts,
      image: { ...parts.image, kernel: "/dev/null", digest: "other" },
    });
    await assert.rejects(templates.machine(SHAPE));
    await assert.rejects(templates.machine({ ...SHAPE, processors: 2 }));
    assert.equal(readdirSync(parts.dir).length, 1);
    assert.deepEqual(readdirSync(parts.place.dir), []);
  });
});
