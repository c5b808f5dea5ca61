import { constants } from "node:os";
import { type ErrorKind, SandboxError } from "#core/errors.ts";

/** What a caller can do about each way a file operation fails; what is not here becomes `InvalidArgument`. */
const KINDS: Readonly<Record<string, ErrorKind>> = {
  ENOENT: "NotFound",
  EACCES: "PermissionDenied",
  EPERM: "PermissionDenied",
  EROFS: "PermissionDenied",
  EEXIST: "AlreadyExists",
  ENOTEMPTY: "FailedPrecondition",
  EXDEV: "FailedPrecondition",
  ESTALE: "FailedPrecondition",
  EUSERS: "SandboxLimit",
  ECANCELED: "Cancelled",
  EBUSY: "FailedPrecondition",
  ETXTBSY: "FailedPrecondition",
  ENOSPC: "SandboxLimit",
  EDQUOT: "SandboxLimit",
  EFBIG: "SandboxLimit",
  EMFILE: "SandboxLimit",
  ENFILE: "SandboxLimit",
  ENOMEM: "SandboxLimit",
  EAGAIN: "SandboxLimit",
  EIO: "Internal",
};

/** `ENOENT`, …, and `errno 999` for a number that this system has no name for. */
export function errnoName(errno: number): string {
  return Object.entries(constants.errno).find(([, value]) => value === errno)?.[0] ?? `errno ${errno}`;
}

const HINTS: Readonly<Record<string, string>> = {
  EUSERS: "more directories than one user may watch (fs.inotify.max_user_watches): watch a smaller tree",
  ESTALE: "it changed while it was read: try again when nobody writes there",
  ENOTDIR: "a part of the way is no directory, or a link: nothing is ever put through a link",
  EXDEV: "the two places are on different file systems, or the directory is from the image: run mv in the sandbox",
  ENOSPC: "the sandbox's disk is full",
  EDQUOT: "the sandbox's disk is full",
};

/**
 * The typed form of an errno that ended a file operation; `what` is what the operation did, in words, `entry` what of a tree it was
 * at, as the sandbox says.
 */
export function errnoError(errno: number, what: string, entry?: string): SandboxError {
  const name = errnoName(errno);
  return new SandboxError(
    KINDS[name] ?? "InvalidArgument",
    `${what}: ${name}${entry === undefined ? "" : ` at ${JSON.stringify(entry)}`}`,
    {
      details: { errno: name, ...(entry === undefined ? {} : { entry }) },
      ...(HINTS[name] === undefined ? {} : { hint: HINTS[name] }),
    },
  );
}
