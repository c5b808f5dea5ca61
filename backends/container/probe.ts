import type { HostFact } from "#host/probe/fact.ts";

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
