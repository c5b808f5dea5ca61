import { DsecError } from "#sdk";

/** The error for something of a Dockerfile that a build does not take. */
export function refused(line: number, what: string): DsecError {
  return new DsecError("InvalidArgument", `line ${line}: ${what}`, {
    hint: "docs/using/building.md has what a build takes",
    details: { line },
  });
}
