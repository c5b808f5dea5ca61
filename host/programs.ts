import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { hasCode } from "#core/errors.ts";

/** Administrators' programs are not in everybody's PATH. */
const SYSTEM_DIRS = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/** Where a program is, in the search path or among the administrators' programs; `undefined` when it is nowhere. */
export function findProgram(name: string, path = process.env.PATH ?? ""): string | undefined {
  for (const dir of [...path.split(delimiter).filter(Boolean), ...SYSTEM_DIRS]) {
    try {
      accessSync(join(dir, name), constants.X_OK);
      return join(dir, name);
    } catch (error) {
      if (!hasCode(error, "ENOENT", "EACCES", "ENOTDIR")) throw error;
    }
  }
  return undefined;
}
