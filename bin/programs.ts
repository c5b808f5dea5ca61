import { fileURLToPath } from "node:url";

/** Debian's bash-static, which sessions run; see docs/contributing/dependencies.md. */
export const SESSION_SHELL = "/bin/bash-static";

/** Where a program is that was built here, by its name. */
export function built(name: string): string {
  return fileURLToPath(new URL(`../.build/${name}`, import.meta.url));
}
