import { constants } from "node:os";
import { SandboxError } from "#core/errors.ts";

/** The number of a signal by its full name, `SIGTERM`. Throws `InvalidArgument` for any other text. */
export function signalNumber(name: string): number {
  const found = Object.entries(constants.signals).find(([known]) => known === name);
  if (found !== undefined) return found[1];
  throw new SandboxError("InvalidArgument", `no signal is called ${JSON.stringify(name.slice(0, 40))}`, {
    hint: "SIGINT, SIGTERM, SIGKILL, …",
  });
}
