import { join } from "node:path";
import { choice, mebibytes, path } from "#core/setting-kinds.ts";
import type { SettingsOf } from "#core/settings.ts";

/** What an operator may set of this backend. */
export const MICROVM_SETTINGS = {
  accelerator: choice(
    ["auto", "kvm", "tcg"],
    "auto",
    "What runs the processors of machines: KVM, TCG (software), or KVM where a guest really boots with it.",
  ),
  guestDir: path(
    undefined,
    "Where the kernel of machines and the templates that they start from are kept, and shared by nodes; default: in the data directory.",
  ),
  machineLayers: choice(
    ["shared", "disks"],
    "shared",
    "How machines that start from a template of their environment have its layers: in memory that they share with the host, or as disks, of which each guest caches for itself what it reads.",
  ),
  machineVolumeSize: mebibytes("64GiB", "Most bytes that the disks of all machines may take; taken as they are used."),
};

/** The values of these settings. */
export type MicrovmConfig = SettingsOf<typeof MICROVM_SETTINGS>;

/** Where the kernel of a node's machines is kept. */
export function guestDirOf({ guestDir }: Pick<MicrovmConfig, "guestDir">, dataDir: string): string {
  return guestDir ?? join(dataDir, "machines", "guest");
}
