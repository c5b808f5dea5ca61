import { type ErrorKind, SandboxError } from "#core/errors.ts";
import type { ConfinedEnd } from "./confined.ts";

/** What a program says when something is wrong, and what that means for whoever asked. The first match counts. */
export type Failures = readonly (readonly [said: RegExp, kind: ErrorKind, hint: string])[];

/** SIGXFSZ, as a shell and as a parent sees it. */
const FILE_LIMIT_STATUS = 128 + 25;

/**
 * Why a program failed: `StorageFull`, `TooLarge` for a file beyond its limit, what the table says, or `Internal`; its last lines are in
 * `details.log`.
 */
export function programFailure(doing: string, end: ConfinedEnd, failures: Failures): SandboxError {
  const text = end.log.join("\n");
  const details = { log: end.log };
  if (/no space left on device|disk quota exceeded/i.test(text)) {
    return new SandboxError("StorageFull", `no room on the node for ${doing}`, { details });
  }
  if (end.code === FILE_LIMIT_STATUS || /file (size limit|too large)/i.test(text)) {
    return new SandboxError("TooLarge", `${doing} would take a file beyond the limit`, { details });
  }
  const [, kind, hint] = failures.find(([said]) => said.test(text)) ?? [text, "Internal" as const, "see details.log"];
  return new SandboxError(kind, `${doing} failed: ${reason(end)}`, { hint, details });
}

/** The last thing that it said, without the frame of its log. */
function reason({ code, log }: ConfinedEnd): string {
  const last = log.at(-1) ?? `its program ended with ${code}`;
  return /msg="(.*)"/.exec(last)?.[1]?.replaceAll('\\"', '"') ?? last;
}
