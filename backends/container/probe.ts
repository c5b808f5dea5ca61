import { SandboxError } from "#core/errors.ts";
import type { HostFact } from "#host/probe/fact.ts";
import { probeHost } from "#host/probe/probe.ts";

/** Facts of the host without which no container can be made; the others only narrow what can be asked for. */
const NEEDS: ReadonlySet<string> = new Set([
  "root",
  "kernel",
  "cgroups",
  "user namespaces",
  "erofs",
  "overlay over id-mapped layers",
  "seccomp",
]);

/** Those facts that keep this host from running containers; empty when it can. */
export function containerObstacles(facts: readonly HostFact[]): readonly HostFact[] {
  return facts.filter(({ name, state }) => NEEDS.has(name) && state === "missing");
}

/**
 * The error to report when containers could not be set up: one that names what the host lacks, where that is the reason, and
 * the given one else. Looking takes a while, so it is done only now.
 */
export async function explainRefusal(error: unknown, dataDir: string): Promise<unknown> {
  if (!(error instanceof SandboxError) || error.kind !== "FailedPrecondition") return error;
  const obstacles = containerObstacles(await probeHost({ dataDir }));
  if (obstacles.length === 0) return error;
  const names = obstacles.map(({ name }) => name);
  return new SandboxError("FailedPrecondition", `this host cannot run containers: it lacks ${names.join(", ")}`, {
    cause: error,
    hint: obstacles.map(({ how }) => how).join("; "),
    details: { lacking: names },
  });
}
