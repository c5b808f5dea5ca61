import { execFile } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { promisify } from "node:util";
import { SandboxError } from "#core/errors.ts";

/** Where Debian's busybox-static, and Alpine's, put the binary. */
const PLACES: readonly string[] = ["/bin/busybox", "/usr/bin/busybox", "/bin/busybox.static"];
const LISTING_TIMEOUT_MS = 10_000;

/** The host's busybox. `FailedPrecondition` when there is none. */
export async function findBusybox(): Promise<string> {
  for (const path of PLACES) {
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  throw new SandboxError("FailedPrecondition", "this host has no busybox", { hint: "apt-get install busybox-static" });
}

/** Paths of the tools a busybox can be, without leading slash: `bin/sh`, … */
export async function busyboxApplets(binary: string, signal?: AbortSignal): Promise<readonly string[]> {
  const options = { timeout: LISTING_TIMEOUT_MS, ...(signal === undefined ? {} : { signal }) };
  const { stdout } = await promisify(execFile)(binary, ["--list-full"], options);
  return stdout.split("\n").filter((line) => line !== "");
}
