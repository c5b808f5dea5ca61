import { SandboxError } from "#core/errors.ts";
import type { TaskSpec } from "#core/guest.ts";

/** Enough to recognise a path by; a longer one would drown what the error says. */
const SHOWN_CHARACTERS = 200;

/** Why a task did not start, with the program, user or directory that the guest refused. Other errors come back as they are. */
export function startError(error: unknown, task: TaskSpec): unknown {
  const subject = error instanceof SandboxError ? subjectOf(error, task) : undefined;
  if (!(error instanceof SandboxError) || subject === undefined) return error;
  const { kind, message, hint, details } = error;
  return new SandboxError(kind, `${message}: ${shown(subject)}`, {
    cause: error,
    details,
    ...(hint === undefined ? {} : { hint }),
  });
}

function subjectOf({ kind, details }: SandboxError, { action, user, cwd }: TaskSpec): Uint8Array | undefined {
  switch (details.stage) {
    case "exec":
    case "interpreter":
      // Other refusals of this stage are not about the program.
      if (kind !== "CommandNotFound" && kind !== "CommandNotExecutable") return undefined;
      return action.type === "exec" ? action.argv[0] : undefined;
    case "user":
      return Buffer.from(user);
    case "cwd":
      return Buffer.from(cwd);
    default:
      return undefined;
  }
}

/** In quotes, cut, with every character escaped that would not be seen or would change how others are. */
function shown(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, 4 * SHOWN_CHARACTERS)).toString("utf8");
  const cut = text.length > SHOWN_CHARACTERS || bytes.length > 4 * SHOWN_CHARACTERS;
  return JSON.stringify(cut ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text).replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
