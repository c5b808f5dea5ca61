import { mebibytes } from "#core/setting-kinds.ts";
import type { SettingsOf } from "#core/settings.ts";

/** What an operator may set of this backend. */
export const VM_SETTINGS = {
  vmVolumeSize: mebibytes(
    "256GiB",
    "Most bytes that the disks of all full virtual machines may take; taken as they are used.",
  ),
};

/** The values of these settings. */
export type VmConfig = SettingsOf<typeof VM_SETTINGS>;
