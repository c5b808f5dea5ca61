import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { DEFAULT_RESOURCES } from "#core/sandbox.ts";
import { diskBytes, storageIn } from "./disk.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-vm-disk-"));
after(() => rmSync(root, { recursive: true }));
const SPEC = { resources: { ...DEFAULT_RESOURCES, diskMiB: undefined } };

function image(name: string): string {
  const dir = join(root, name);
  mkdirSync(dir);
  return dir;
}

test("a link in a layer is no disk, wherever it leads: what lies behind it is not the layer's", () => {
  writeFileSync(join(root, "secret"), Buffer.alloc(4096));
  const dir = image("linked");
  symlinkSync(join(root, "secret"), join(dir, "disk"));
  assert.throws(() => diskBytes(SPEC, dir), { kind: "InvalidArgument", message: /no image/ });
  mkdirSync(join(dir, "cdrom"));
  assert.throws(() => diskBytes(SPEC, dir), { kind: "InvalidArgument", message: /no image/ });
});

test("what starts a disk, and what its firmware kept, is the layer's own as well", () => {
  const dir = image("started");
  writeFileSync(join(dir, "disk"), Buffer.alloc(8192));
  writeFileSync(join(dir, "kernel"), "kernel");
  for (const name of ["initramfs", "variables"]) symlinkSync(join(root, "secret"), join(dir, name));
  assert.equal(diskBytes(SPEC, dir), 8192);
  const { disk, kernel } = storageIn("/upper", SPEC, { imageDir: dir, shape: { firmware: "bios", devices: "virtio" } });
  assert.deepEqual([disk?.base, kernel], [join(dir, "disk"), undefined]);
});
