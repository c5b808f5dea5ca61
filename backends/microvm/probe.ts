import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { connectMachine } from "#guest/protocol/machine.ts";
import type { GuestImage } from "#host/vmm/guest/image.ts";
import { type Accelerator, MACHINE_PORTS, type MachinePlace, type Vmm } from "#host/vmm/vmm.ts";
import type { MicrovmConfig } from "./config.ts";

/** What a trial guest is made of. */
export interface Trial {
  readonly vmm: Vmm;
  readonly image: GuestImage;
  /** Its directory is removed after. */
  readonly place: MachinePlace;
}

const DEVICE = "/dev/kvm";
/** Why it is not tried. */
export const NO_KVM = `there is no ${DEVICE}`;
const TRIAL_MEMORY_MIB = 128;
/** With KVM a guest answers within a second. One that only looks like it hangs before its kernel has said anything. */
const TRIAL_LIMIT_MS = 8_000;

/**
 * What runs the processors of this node's machines. A KVM that creates machines may still not run them, so a guest has to answer.
 * `FailedPrecondition` where the operator wants KVM and it does not work.
 */
export async function chooseAccelerator(
  wanted: MicrovmConfig["accelerator"],
  trial: Trial,
  log: (line: string) => void,
): Promise<Accelerator> {
  if (wanted === "tcg") return "tcg";
  const obstacle = isKvmThere() ? await tryKvm(trial) : NO_KVM;
  if (obstacle === undefined) return "kvm";
  if (wanted === "kvm") {
    throw new SandboxError("FailedPrecondition", `KVM does not run machines here: ${obstacle}`, {
      hint: "start the node with --accelerator=tcg, which is much slower, or on a host with KVM",
    });
  }
  log(`machines run in software, ten to thirty times slower than with KVM: ${obstacle}`);
  return "tcg";
}

/** Whether there is something to try. */
export function isKvmThere(): boolean {
  return existsSync(DEVICE);
}

/** Why KVM does not do; `undefined` when a guest has answered. */
export async function tryKvm({ vmm, image, place }: Trial): Promise<string | undefined> {
  const { dir } = place;
  const signal = AbortSignal.timeout(TRIAL_LIMIT_MS);
  const memory = { sizeMiB: TRIAL_MEMORY_MIB };
  const parts = {
    accelerator: "kvm",
    processors: 1,
    memory,
    disks: [],
    regions: [],
    devices: undefined,
    lender: undefined,
  } as const;
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  try {
    const machine = await vmm.start({ ...parts, kernel: image.kernel, initramfs: image.initramfs }, place, signal);
    try {
      await machine.run();
      (await connectMachine(join(dir, MACHINE_PORTS.control), signal)).close();
      return undefined;
    } finally {
      await machine.end();
    }
  } catch (error) {
    return signal.aborted ? `no guest answers within ${TRIAL_LIMIT_MS / 1_000} s` : String(error);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
