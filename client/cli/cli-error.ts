import { DsecError } from "#sdk";

/** What went wrong on this side, before or beside any call; printed like the errors of the SDK. */
export class CliError extends DsecError {}

/** True for a system error with one of these codes (`ENOENT`, …). */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code);
}
