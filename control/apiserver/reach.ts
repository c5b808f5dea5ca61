import type { Reach } from "../artifacts.ts";
import type { Principal } from "../iam/iam.ts";

/** A project's members must not use the node to get at what is behind it. */
export function reachOf({ role }: Principal): Reach {
  return role === "admin" ? "anywhere" : "outside";
}
