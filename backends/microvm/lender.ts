import { asSandboxError } from "#core/errors.ts";
import { type Finding, type HostFact, missing, partial, works } from "#host/probe/fact.ts";
import { lendingObstacle } from "#host/vmm/qemu/lending.ts";

/** The library that lends machines the memory of their templates, where this host's QEMU takes it so. The log says why not, and what that means. */
export async function provenLender(lender: string, log: (line: string) => void): Promise<string | undefined> {
  const obstacle = await lendingObstacle(lender);
  if (obstacle === undefined) return lender;
  log(`memory that the guests of microVMs free goes back to this host when a machine ends, not before: ${obstacle}`);
  return undefined;
}

/** How to get it, by how much of it there is. */
const HOW = {
  works: "",
  partial: "a QEMU that is linked dynamically, and a file system that lets libraries be loaded",
  missing: "apt-get install qemu-system-x86",
} as const;

/** Whether what guests free goes back while they run on this host. Never throws. */
export async function lendingFact(lender: string): Promise<HostFact> {
  const found = await look(lender).catch((error: unknown) => missing(asSandboxError(error).message));
  const why = "microVMs that are idle hold what they need, not what they once needed";
  return { name: "memory of microVMs", why, ...found, how: HOW[found.state] };
}

async function look(lender: string): Promise<Finding> {
  const obstacle = await lendingObstacle(lender);
  return obstacle === undefined ? works("what their guests free goes back at once") : partial(obstacle);
}
