import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asSandboxError } from "#core/errors.ts";
import { type Finding, type HostFact, missing, partial, works } from "#host/probe/fact.ts";
import { type GuestPrograms, guestImage } from "#host/vmm/guest/image.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { isKvmThere, NO_KVM, tryKvm } from "./probe.ts";

const ABOUT = {
  name: "virtual machines",
  why: "microVMs and full VMs; in software they are ten to thirty times slower than with KVM",
  how: "apt-get install qemu-system-x86, on a host that has KVM and lets guests run with it",
} as const;

/** What a trial of a machine takes on this host. */
export interface MachineTrial {
  /** Where the kernel of machines is kept, and fetched to if it is not there and KVM is to be tried. */
  readonly guestDir: string;
  readonly programs: GuestPrograms;
  /** A user that has nothing. */
  readonly uid: number;
}

/** What would run machines on this host, and why: KVM counts when a guest has really booted with it. Never throws. */
export async function machineFact(trial: MachineTrial): Promise<HostFact> {
  const { state, detail } = await look(trial).catch((error: unknown) => missing(asSandboxError(error).message));
  return { ...ABOUT, how: state === "works" ? "" : ABOUT.how, state, detail };
}

async function look({ guestDir, programs, uid }: MachineTrial): Promise<Finding> {
  const vmm = await openQemu();
  const inSoftware = (why: string) => partial(`${vmm.name}, in software (tcg): ${why}`);
  if (!isKvmThere()) return inSoftware(NO_KVM);
  const dir = mkdtempSync(join(tmpdir(), "dsec-trial-"));
  try {
    const place = { dir: join(dir, "machine"), uid, cgroups: [] };
    const obstacle = await tryKvm({ vmm, image: await guestImage(guestDir, programs), place });
    return obstacle === undefined ? works(`${vmm.name} with KVM: a guest has booted`) : inSoftware(obstacle);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
