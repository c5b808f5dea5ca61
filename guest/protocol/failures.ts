import { constants } from "node:os";
import { getSystemErrorName } from "node:util";
import { type ErrorKind, SandboxError } from "#core/errors.ts";
import type { TaskEnd } from "#core/guest.ts";
import { getOffset, malformed } from "./frames.ts";

/** What the agent says of ends and failures, as the types of core. */

const SIGNAL_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.signals)
    // Synonyms (SIGIOT, SIGPOLL) come after the usual name and must not replace it.
    .reverse()
    .map(([name, number]) => [number, name]),
);
const SIGRTMIN = 34;
const CAUSES = ["exited", "signaled", "timeout", "session-ended"] as const;
/** Beside a cause: the session of the line ended together with it. */
const WITH_SESSION = 0x40;

/** `SIGKILL`, …, and `SIGRTMIN+3` for those without a name of their own. */
export function signalName(signal: number): string {
  return SIGNAL_NAMES.get(signal) ?? (signal >= SIGRTMIN ? `SIGRTMIN+${signal - SIGRTMIN}` : `SIG${signal}`);
}

/** The 28 bytes that tell how a leader ended; `cause` comes in the frame's flag. */
export function decodeEnd(causeCode: number, payload: Buffer, at: number): TaskEnd {
  const cause = CAUSES[causeCode & ~WITH_SESSION];
  if (cause === undefined) throw malformed(`an unknown cause ${causeCode}`);
  const value = payload.readInt32LE(at);
  return {
    cause,
    code: value >= 0 && cause !== "session-ended" ? value : undefined,
    signal: value < 0 ? signalName(-value) : undefined,
    ...((causeCode & WITH_SESSION) === 0 ? {} : { sessionEnded: true as const }),
    wallMs: getOffset(payload, at + 4) / 1000,
    cpuMs: getOffset(payload, at + 12) / 1000,
    maxRssKiB: getOffset(payload, at + 20),
  };
}

const STAGES: ReadonlyMap<number, string> = new Map([
  [1, "request"],
  [2, "limit"],
  [3, "confine"],
  [4, "spawn"],
  [5, "setup"],
  [6, "user"],
  [7, "rlimit"],
  [8, "cwd"],
  [9, "exec"],
  [10, "interpreter"],
  [11, "duplicate"],
  [12, "connect"],
  [13, "session"],
  [14, "cell"],
]);
const LIMIT_CODES: ReadonlySet<string> = new Set([
  "EAGAIN",
  "ENOMEM",
  "EMFILE",
  "ENFILE",
  "ENOSPC",
  "EDQUOT",
  "ETOOMANYREFS",
]);

const EXEC_HINTS: ReadonlyMap<string, string> = new Map([
  ["EACCES", "make the file executable (chmod +x) for the user, and the directories above it passable"],
  ["ENOEXEC", "use a program for this processor, or begin a script with a line such as #!/bin/sh"],
  ["ETXTBSY", "run it when whoever writes the file has closed it"],
]);

/** The typed error of a start that failed at `stage` with `errno`. */
export function startFailure(stageCode: number, errno: number): SandboxError {
  const stage = STAGES.get(stageCode) ?? `stage ${stageCode}`;
  const code = errno > 0 ? (nameOf(errno) ?? `errno ${errno}`) : "no errno";
  const { kind, message, hint } = describe(stage, code);
  return new SandboxError(kind, message, { details: { stage, code }, ...(hint === undefined ? {} : { hint }) });
}

interface Description {
  readonly kind: ErrorKind;
  readonly message: string;
  readonly hint?: string;
}

/** Nothing else that the agent opens for a start is counted in this way. */
const NO_TERMINAL: Description = {
  kind: "SandboxLimit",
  message: "the sandbox has no terminal left (ENOSPC)",
  hint: "end commands on terminals: a sandbox has 64 at most",
};

function describe(stage: string, code: string): Description {
  switch (stage) {
    case "exec":
      return describeExec(code);
    case "interpreter":
      return {
        kind: "CommandNotExecutable",
        message: "the program's interpreter does not exist in the sandbox",
        hint: "check its first line, or the loader it was linked for",
      };
    case "cwd":
      return {
        kind: "InvalidArgument",
        message: `the working directory cannot be entered (${code})`,
        hint: "name a directory that exists in the sandbox and that the user may enter",
      };
    case "user":
      return {
        kind: "InvalidArgument",
        message: code === "ENOENT" ? "the sandbox has no such user or group" : `the user cannot be taken on (${code})`,
        hint: "name a user of the image's /etc/passwd, or give numbers: uid or uid:gid",
      };
    case "connect":
      return {
        kind: "PortFailed",
        message: `nothing in the sandbox takes connections at the port (${code})`,
        hint: "start a server that listens on 127.0.0.1, ::1 or every address; waiting for a port is a call",
      };
    case "limit":
      return code === "ENOSPC" ? NO_TERMINAL : describeRefusal(code);
    case "duplicate":
      return { kind: "AlreadyExists", message: "the agent has a task of this number" };
    case "request":
      return { kind: "InvalidArgument", message: "the agent does not understand the task" };
    case "session":
      return describeSession(code);
    case "rlimit":
      return {
        kind: "FailedPrecondition",
        message: `a resource limit of the sandbox cannot be set (${code})`,
        hint: "hard limits cannot be above those of the node",
      };
    default:
      return describeRefusal(code);
  }
}

function describeSession(code: string): Description {
  if (code === "ENOENT") {
    return {
      kind: "FailedPrecondition",
      message: "the sandbox was made without a shell for sessions",
      hint: "install bash-static on the node, and make a new sandbox",
    };
  }
  return {
    kind: "FailedPrecondition",
    message: "the session has ended",
    hint: "open a new one: its variables and working directory are gone",
  };
}

function describeExec(code: string): Description {
  if (code === "ENOENT" || code === "ENOTDIR") {
    return {
      kind: "CommandNotFound",
      message: "the program does not exist in the sandbox",
      hint: "give its full path, or a PATH that contains it",
    };
  }
  if (code === "E2BIG") {
    return {
      kind: "InvalidArgument",
      message: "arguments and environment are larger than the kernel takes",
      hint: "pass the data in a file or on stdin",
    };
  }
  if (LIMIT_CODES.has(code)) return describeRefusal(code);
  const hint = EXEC_HINTS.get(code);
  return {
    kind: "CommandNotExecutable",
    message: `the program cannot be run (${code})`,
    ...(hint === undefined ? {} : { hint }),
  };
}

function describeRefusal(code: string): Description {
  if (!LIMIT_CODES.has(code)) return { kind: "Internal", message: `the agent could not start a process (${code})` };
  return {
    kind: "SandboxLimit",
    message: `the sandbox has no room for another process (${code})`,
    hint: "wait for commands to end, or create it with more memory or pids",
  };
}

function nameOf(errno: number): string | undefined {
  try {
    return getSystemErrorName(-errno);
  } catch {
    return undefined;
  }
}
