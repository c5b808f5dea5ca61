import { SandboxError } from "#core/errors.ts";
import { type PackedDiff, type PackOptions, SCRUB_RULES } from "#core/packing.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import { refuse } from "#edge/validate.ts";

/** As many as a request can have; each is looked at for every file. */
const MAX_PATTERNS = 256;

/** See `Node.packDiff`. The sandbox does not count as idle meanwhile; one that is removed takes the pack along. */
export async function packDiff({ driver, signal }: CommandCall, options: PackOptions): Promise<PackedDiff> {
  validatePacking(options);
  using _busy = driver.busy();
  await driver.awake("pack", signal);
  const { backend } = driver.beside("pack");
  if (backend.packing === undefined) {
    throw new SandboxError("FailedPrecondition", `sandboxes of the ${backend.kind} backend cannot be packed`, {
      hint: "download what is needed, and import it as an artifact",
    });
  }
  return await backend.packing.pack(driver.spec, options, AbortSignal.any([signal, driver.leaving]));
}

function validatePacking({ exclude, keep, consistent }: PackOptions): void {
  if (!Array.isArray(exclude) || exclude.length > MAX_PATTERNS || exclude.some((one) => typeof one !== "string")) {
    refuse("exclude", `must be at most ${MAX_PATTERNS} patterns`);
  }
  if (!Array.isArray(keep) || keep.some((rule) => !SCRUB_RULES.includes(rule))) {
    refuse("keep", `must be some of ${SCRUB_RULES.join(", ")}`);
  }
  if (typeof consistent !== "boolean") refuse("consistent", "must be true or false");
}
