import type { FakeHost } from "./host.ts";

/** Why this node cannot run fakes; undefined when it can. A severed node is one whose process has died, for its tests. */
export function fakeObstacle(host: FakeHost, generation: number): string | undefined {
  return host.generation === generation ? undefined : "another backend has taken this node over";
}
