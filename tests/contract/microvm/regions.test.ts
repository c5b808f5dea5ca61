import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { guestImage } from "#host/vmm/guest/image.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { REGION_STEP_BYTES } from "#host/vmm/vmm.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../../support/node.ts";
import { compileProgram, output } from "../../support/sandbox.ts";
import { tarOf } from "../../support/tar.ts";
import { MICROVM } from "./backend.ts";

const MIB = 1024 * 1024;
const FILE_MIB = 24;
const BUILD = join(import.meta.dirname, "../../../.build");

describe("layers of microVMs in memory that they share", { timeout: 1_200_000 }, () => {
  const bytes = randomBytes(FILE_MIB * MIB);
  const sum = createHash("md5").update(bytes).digest("hex");
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
    await node.client.artifacts.import(await tarOf({ name: "file", body: bytes }), { name: "work", kind: "workspace" });
    // From the second on they go on from a template of their environment.
    for (let warming = 0; warming < 2; warming++) await (await make()).remove();
  });
  after(() => node[Symbol.asyncDispose]());

  const make = () => MICROVM.create(node, { workspace: "work", resources: { memoryMiB: 64 } });

  const regionsDir = () => join(node.runDir, "machine-disks/volume/.shared/regions");

  async function reads(sandbox: Sandbox): Promise<void> {
    assert.equal(await output(sandbox, "md5sum </file"), `${sum}  -`);
  }

  async function cachedKiB(sandbox: Sandbox): Promise<number> {
    return Number(await output(sandbox, "awk '/^Cached/ { print $2 }' /proc/meminfo"));
  }

  /** Of the copies that its monitor has in its memory: rights, and KiB that it has read and written there. */
  function regionsOf({
    id,
  }: Sandbox): readonly { readonly rights: string; readonly kiB: number; readonly dirtyKiB: number }[] {
    const { pid } = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
    const parts = readFileSync(`/proc/${pid}/smaps`, "utf8").split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
    const kiB = (part: string, name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(part)?.[1]);
    return parts
      .filter((part) => part.split("\n")[0]?.includes("/regions/"))
      .map((part) => ({
        rights: part.split(" ")[1] ?? "",
        kiB: kiB(part, "Rss"),
        dirtyKiB: kiB(part, "Private_Dirty") + kiB(part, "Shared_Dirty"),
      }));
  }

  test("a guest that reads a file of a layer keeps nothing of it: it is the host's page that it reads", async () => {
    await using sandbox = await make();
    const before = await cachedKiB(sandbox);
    await reads(sandbox);
    assert.ok((await cachedKiB(sandbox)) - before < 2 * 1024, "its kernel cached the file");
    const regions = regionsOf(sandbox);
    // Metadata and data of base and workspace.
    assert.equal(regions.length, 4);
    assert.ok(
      regions.every(({ rights, dirtyKiB }) => rights === "r--s" && dirtyKiB === 0),
      JSON.stringify(regions),
    );
    assert.ok(
      regions.some(({ kiB }) => kiB >= FILE_MIB * 1024),
      JSON.stringify(regions),
    );
    assert.match(await output(sandbox, "echo changed >>/file; tail -c 8 /file"), /changed/);
  });

  test("programs run out of it, and it does not count as memory of the sandbox", async () => {
    await using sandbox = await make();
    await reads(sandbox);
    assert.ok((await sandbox.usage()).memory.bytes < 16 * MIB);
    assert.equal(await output(sandbox, "busybox echo ran"), "ran");
  });

  test("pauses, forks and a node that is killed leave it as it is; copies that are gone are made again", async () => {
    const sandbox = await make();
    const command = await sandbox.start("exec 3</file; while sleep 0.1; do :; done");
    await sandbox.pause();
    rmSync(regionsDir(), { recursive: true });
    mkdirSync(regionsDir());
    await reads(sandbox);
    assert.equal(readdirSync(regionsDir()).length, 4);
    assert.equal(regionsOf(sandbox).length, 4);
    await node.kill();
    await node.start();
    const again = node.client.sandboxes.use(sandbox.id);
    await reads(again);
    const { forks } = await again.fork({ count: 2 });
    for (const fork of forks) {
      assert.ok("sandbox" in fork, "error" in fork ? fork.error.message : "");
      await reads(fork.sandbox);
      assert.equal(regionsOf(fork.sandbox).length, 4);
      await fork.sandbox.pause();
      await reads(fork.sandbox);
      await fork.sandbox.remove();
    }
    await again.pause();
    await reads(again);
    assert.equal((await again.command(command.id).info()).status, undefined);
    await again.remove();
  });

  test("a node that is asked for disks gives disks", async () => {
    await using own = await MICROVM.startNode({ words: ["--machine-layers=disks"] });
    for (let made = 0; made < 2; made++) {
      await using sandbox = await MICROVM.create(own);
      const { pid } = JSON.parse(readFileSync(join(own.runDir, "machines", sandbox.id, "vmm.json"), "utf8")) as {
        pid: number;
      };
      const words = readFileSync(`/proc/${pid}/cmdline`, "latin1");
      assert.ok(words.includes("virtio-blk-pci") && !words.includes("virtio-pmem"));
    }
  });
});

test("a guest that writes to a region by all means changes neither the file nor what it reads there, and goes on", {
  timeout: 300_000,
}, async () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-region-"));
  const file = join(dir, "region");
  const content = Buffer.alloc(REGION_STEP_BYTES, "A");
  writeFileSync(file, content, { mode: 0o666 });
  const init = join(dir, "init");
  writeFileSync(init, compileProgram(join(import.meta.dirname, "../testdata/region.c")));
  try {
    const programs = { agent: init, cradle: join(BUILD, "dsec-cradle"), shell: "/bin/bash-static" };
    const [vmm, { kernel, initramfs }] = [await openQemu(), await guestImage(join(BUILD, "guest"), programs)];
    const place = { dir: join(dir, "machine"), uid: 0x0800_0000, cgroups: [] };
    mkdirSync(place.dir);
    const parts = { accelerator: "tcg", processors: 1, memory: { sizeMiB: 256 }, kernel, initramfs } as const;
    const regions = [{ file, sizeBytes: REGION_STEP_BYTES }];
    const machine = await vmm.start(
      { ...parts, disks: [], regions, devices: undefined, lender: undefined },
      place,
      AbortSignal.timeout(60_000),
    );
    rmSync(initramfs);
    try {
      await machine.run();
      let said = "";
      while (!/^end\r?$/m.test(said)) said += await machine.console();
      assert.match(said, /written 65536 synced 0/);
      assert.match(said, /mapped 1 changed 0/);
      assert.match(said, /read 65536 changed 0/);
      assert.ok(readFileSync(file).equals(content));
    } finally {
      await machine.end();
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});
