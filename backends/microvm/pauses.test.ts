import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Handle } from "#core/backend.ts";
import { asSandboxError } from "#core/errors.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { connectQmp } from "#host/vmm/qemu/qmp.ts";
import { MONITOR_SOCKET } from "#host/vmm/qemu/spawn.ts";
import { savedFiles } from "#host/vmm/saved.ts";
import { type MicrovmRig, microvmRig } from "./test-support/rig.ts";

const PLACE = { slot: 0 };
const [LIMIT_MS, BOOT_MS] = [120_000, 300_000];
const soon = () => AbortSignal.timeout(LIMIT_MS);

const skip = await openQemu().then(
  () => false as const,
  (error: unknown) => `${asSandboxError(error).message}: ./dsec test microvm installs it`,
);

describe("pauses of machines", { skip, timeout: 1_200_000 }, () => {
  let rig: MicrovmRig;
  before(async () => {
    rig = await microvmRig();
    // The first machine of a kernel boots it.
    const { id } = (await made(BOOT_MS)).spec;
    await rig.backend.destroy(id);
  });
  after(() => rig[Symbol.asyncDispose]());

  async function made(limitMs = LIMIT_MS): Promise<{ readonly spec: SandboxSpec; readonly handle: Handle }> {
    const spec = rig.spec();
    return { spec, handle: await rig.backend.create(spec, PLACE, AbortSignal.timeout(limitMs)) };
  }
  const pause = (handle: Handle, spec: SandboxSpec) => pausing().pause(handle, spec, soon());
  const resume = (handle: Handle, spec: SandboxSpec) => pausing().resume(handle, spec, PLACE, soon());
  function pausing() {
    assert.ok(rig.backend.pausing !== undefined);
    return rig.backend.pausing;
  }
  async function bootOf(handle: Handle): Promise<string> {
    const link = await rig.backend.connect(handle, soon());
    link.close();
    return link.hello.bootId;
  }

  test("the second pause adds to the memory of the first", async () => {
    const { spec, handle } = await made();
    const files = savedFiles(rig.diskDir(spec.id));
    const first = await pause(handle, spec);
    const { ino } = statSync(files.memory);
    const second = await pause(await resume(first, spec), spec);
    assert.equal(statSync(files.memory).ino, ino);
    assert.deepEqual(await rig.backend.recover(second), second);
    await rig.backend.destroy(spec.id);
    assert.equal(await rig.backend.recover(second), undefined);
  });

  test("what is damaged or does not fit is refused with the reason, stays, and goes on when it fits again", async () => {
    const { spec, handle } = await made();
    const boot = await bootOf(handle);
    const saved = await pause(handle, spec);
    const files = savedFiles(rig.diskDir(spec.id));
    for (const [file, change, reason] of [
      [files.devices, (text: string) => `${text}x`, /devices is damaged/],
      [files.record, (text: string) => text.replace("qemu ", "qemu 0."), /it was qemu 0\./],
      [files.record, (text: string) => text.replace('"version":1', '"version":2'), /version 2/],
    ] as const) {
      const before = readFileSync(file, "latin1");
      writeFileSync(file, change(before), "latin1");
      await assert.rejects(resume(saved, spec), { kind: "FailedPrecondition", message: reason });
      assert.deepEqual(await rig.backend.recover(saved), saved);
      writeFileSync(file, before, "latin1");
    }
    assert.equal(await bootOf(await resume(saved, spec)), boot);
    await rig.backend.destroy(spec.id);
  });

  test("a machine that was held when its node died goes on", async () => {
    const { spec, handle } = await made();
    const boot = await bootOf(handle);
    await rig.restart();
    const qmp = await connectQmp(join(rig.runDir(spec.id), MONITOR_SOCKET));
    await qmp.order("stop");
    qmp.close();
    await qmp.closed;
    const again = await resume(handle, spec);
    assert.deepEqual(again, handle);
    assert.equal(await bootOf(again), boot);
    await rig.backend.destroy(spec.id);
  });

  test("a machine whose monitor has died is lost, in a pause and in a resume", async () => {
    const { spec, handle } = await made();
    await rig.killAgent(handle);
    await assert.rejects(pause(handle, spec), { kind: "SandboxLost" });
    await assert.rejects(resume(handle, spec), { kind: "SandboxLost" });
    await rig.backend.destroy(spec.id);
  });
});
