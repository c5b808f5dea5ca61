import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";

/** What programs in sandboxes are confined by; the name of the file beside this one, and of the profile in it. */
const SANDBOX_PROFILE = "dsec-sandbox";

/** The profile that the kernel has now, or why there is none, for people: one of the two. */
export interface LoadedProfile {
  readonly profile: string | undefined;
  readonly reason: string | undefined;
}

/** Whether the kernel enforces AppArmor profiles. */
export function isAppArmorOn(file = "/sys/module/apparmor/parameters/enabled"): boolean {
  try {
    return readFileSync(file, "utf8").trim() === "Y";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/**
 * Gives the kernel the profile of sandboxes, replacing an earlier version, under which live sandboxes go on. It stays until the
 * machine is switched off. `FailedPrecondition` when the kernel has AppArmor and refuses it: sandboxes would run with less
 * than the host promises.
 */
export async function loadSandboxProfile(parser = "apparmor_parser"): Promise<LoadedProfile> {
  if (!isAppArmorOn()) return without("this kernel does not enforce AppArmor");
  try {
    // No cache: an entry of another version would be taken for this one when its file is newer.
    await run(parser, ["--replace", "--skip-cache", join(import.meta.dirname, SANDBOX_PROFILE)]);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return without("apparmor_parser is missing (package apparmor)");
    throw new SandboxError("FailedPrecondition", "the kernel's AppArmor does not take the profile of sandboxes", {
      cause: error,
      hint: `try it by hand: apparmor_parser --replace ${join(import.meta.dirname, SANDBOX_PROFILE)}`,
    });
  }
  return { profile: SANDBOX_PROFILE, reason: undefined };
}

function without(reason: string): LoadedProfile {
  return { profile: undefined, reason };
}

const run = promisify(execFile);
