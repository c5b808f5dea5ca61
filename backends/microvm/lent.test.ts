import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { connectMachine, type MachineControl } from "#guest/protocol/machine.ts";
import { guestImage } from "#host/vmm/guest/image.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { connectQmp } from "#host/vmm/qemu/qmp.ts";
import { MONITOR_SOCKET } from "#host/vmm/qemu/spawn.ts";
import { MACHINE_PORTS, type Machine } from "#host/vmm/vmm.ts";
import { emptyDisks } from "./disks.ts";
import { Templates } from "./templates.ts";

const BUILD = join(import.meta.dirname, "../../.build");
const MIB = 1024 * 1024;
const SHAPE = { memoryMiB: 128, processors: 1, disks: 8, regions: [] };
/** More of it the kernel keeps for itself. */
const LEFT_MIB = 96;
const GIVE_LIMIT_MS = 60_000;
const UID = 0x0800_0000;

test("a guest that gives away its memory page by page changes nothing for its template and for other guests", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "dsec-vm-"));
  await using left = new AsyncDisposableStack();
  left.defer(() => rmSync(root, { recursive: true }));
  const vmm = await openQemu();
  const programs = { agent: join(BUILD, "dsec-agent"), cradle: join(BUILD, "dsec-cradle"), shell: "/bin/bash-static" };
  const image = await guestImage(join(BUILD, "guest"), programs);
  const parts = { vmm, image, accelerator: "tcg", lender: join(BUILD, "dsec-lend.so") } as const;
  const place = { dir: join(root, "run"), uid: UID, cgroups: [] };
  const templates = await Templates.open({ ...parts, dir: join(root, "templates"), nearDir: undefined, place });
  const spec = { ...(await templates.machine(SHAPE)), disks: emptyDisks(SHAPE.disks) };
  const path = spec.memory.file?.path ?? "";

  const start = async (name: string): Promise<{ machine: Machine; control: MachineControl; dir: string }> => {
    const dir = join(root, name);
    mkdirSync(dir);
    const machine = await vmm.start(spec, { ...place, dir }, t.signal);
    left.defer(() => machine.end());
    await machine.run();
    return { machine, control: await connectMachine(join(dir, MACHINE_PORTS.control), t.signal), dir };
  };
  const before = fileOf(path);
  const [giver, other] = [await start("giver"), await start("other")];
  // The node never asks for that; what the guest does then is what one could do unasked.
  giver.machine.leave();
  const qmp = await connectQmp(join(giver.dir, MONITOR_SOCKET));
  left.defer(() => qmp.close());
  await qmp.order("balloon", { value: LEFT_MIB * MIB });
  const size = async () => ((await qmp.order("query-balloon")) as { actual: number }).actual;
  const giveUpAtMs = Date.now() + GIVE_LIMIT_MS;
  while ((await size()) > LEFT_MIB * MIB) {
    assert.ok(Date.now() < giveUpAtMs, "the guest has given it");
    await delay(50);
  }

  assert.deepEqual(fileOf(path), before);
  await giver.control.greet();
  await other.control.greet();
  // Still whole enough to begin with.
  await (await start("later")).control.greet();
  assert.deepEqual(fileOf(path), before);
});

function fileOf(path: string) {
  const { size, blocks, ino } = statSync(path);
  return { digest: createHash("sha256").update(readFileSync(path)).digest("hex"), size, blocks, ino };
}
