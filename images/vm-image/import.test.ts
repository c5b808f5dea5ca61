import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createReadStream, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type LayerMounts, openLayerMounts } from "../layers/mounts.ts";
import { type LayerStore, openLayerStore } from "../store.ts";
import { importVmImage, VM_IMAGE_FILES } from "./import.ts";

const MIB = 1024 * 1024;
/** An id that nobody has. */
const UID = 0x07ff_0000;

describe("importing images of disks", () => {
  let root: string;
  let store: LayerStore;
  let mounts: LayerMounts;
  let disk: Buffer;

  before(async () => {
    root = mkdtempSync(join(tmpdir(), "dsec-vm-image-"));
    store = await openLayerStore(join(root, "store"));
    mounts = await openLayerMounts({ store, runDir: join(root, "run") });
    // A boot sector, a hole, and data that begins and ends between chunks.
    disk = Buffer.alloc(6 * MIB);
    disk.writeUInt16LE(0xaa55, 510);
    randomBytes(MIB + 4096).copy(disk, 3 * MIB + 512);
    writeFileSync(join(root, "raw"), disk);
  });
  after(() => {
    mounts.unmountAll();
    store[Symbol.dispose]();
    rmSync(root, { recursive: true });
  });

  const importFile = (name: string) =>
    importVmImage({ store, source: createReadStream(join(root, name)), uid: UID, signal: AbortSignal.timeout(60_000) });
  const made = (format: string, ...options: string[]) => {
    execFileSync("qemu-img", ["convert", "-O", format, ...options, join(root, "raw"), join(root, format)]);
    return format;
  };
  const leftOvers = () => readdirSync(join(root, "store", "tmp"));

  test("gives the plain bytes of the disk, whatever form they came in, and equal disks are one layer", async () => {
    const plain = await importFile("raw");
    assert.equal(plain.format, "raw");
    const [dir = ""] = await mounts.acquire(plain.layers);
    assert.deepEqual(readdirSync(dir), [VM_IMAGE_FILES.disk]);
    assert.ok(readFileSync(join(dir, VM_IMAGE_FILES.disk)).equals(disk));
    assert.ok(plain.sizeBytes < 4 * MIB, "a hole takes no space");
    for (const form of [made("qcow2", "-c"), made("vmdk", "-o", "subformat=streamOptimized")]) {
      const other = await importFile(form);
      assert.deepEqual([other.format, other.layers], [form, plain.layers]);
    }
    assert.deepEqual(leftOvers(), []);
  });

  test("a CD is a CD", async () => {
    const cd = Buffer.alloc(MIB);
    cd.write("CD001", 32_769, "latin1");
    writeFileSync(join(root, "iso"), cd);
    const { layers, format } = await importFile("iso");
    assert.equal(format, "iso");
    const [dir = ""] = await mounts.acquire(layers);
    assert.deepEqual(readdirSync(dir), [VM_IMAGE_FILES.cdrom]);
  });

  test("a backing file that points at a host path: nothing of it is read, and nothing is left", async () => {
    execFileSync("qemu-img", [
      "create",
      "-q",
      "-u",
      "-f",
      "qcow2",
      "-b",
      "/etc/shadow",
      "-F",
      "raw",
      join(root, "thief"),
      "1M",
    ]);
    await assert.rejects(importFile("thief"), { kind: "InvalidArgument", message: /backing file/ });
    assert.deepEqual(leftOvers(), []);
  });

  test("an image that is damaged behind its header is refused", async () => {
    const image = readFileSync(join(root, made("qcow2")));
    // The first table is larger than any.
    image.writeUInt32BE(0xffff_ffff, 36);
    writeFileSync(join(root, "damaged"), image);
    await assert.rejects(importFile("damaged"), { kind: "InvalidArgument", message: /damaged/ });
    assert.deepEqual(leftOvers(), []);
  });

  test("an image that is cut off within a sector is refused, and one that nobody waits for is given up", async () => {
    writeFileSync(join(root, "cut"), disk.subarray(0, 1000));
    await assert.rejects(importFile("cut"), { kind: "InvalidArgument", message: /cut off/ });
    const source = createReadStream(join(root, "raw"));
    await assert.rejects(
      importVmImage({ store, source, uid: UID, signal: AbortSignal.abort(new Error("left")) }),
      /left/,
    );
    assert.deepEqual(leftOvers(), []);
  });
});
