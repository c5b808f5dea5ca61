import { lstatSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";

/** Ids of a sandbox: 0 up to here. What is owned by another was written under a map that earlier releases had no use for. */
const IDS = 65_536;

/** Throws `FailedPrecondition` for the upper of a sandbox that an earlier release made: its files are owned by ids of the host. */
export function checkPlain(id: string, upperDir: string): void {
  if (lstatSync(upperDir).uid < IDS) return;
  throw new SandboxError("FailedPrecondition", `${id} was made by an earlier release, which stored other user ids`, {
    hint: "make a new sandbox, and copy what is needed of this one into it",
  });
}
