import { readdirSync } from "node:fs";
import { hasCode } from "#core/errors.ts";

/** Names of the child cgroups of a cgroup; none when it is gone. */
export function subdirectories(dir: string): readonly string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
}
