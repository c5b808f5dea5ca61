import { constants } from "node:os";
import { type ErrorKind, SandboxError } from "#core/errors.ts";

interface Meaning {
  readonly kind: ErrorKind;
  readonly hint: string;
}

const DISK_FULL: Meaning = {
  kind: "SandboxLimit",
  hint: "the sandbox's disk is full: remove files, or make it with more diskMiB",
};
const TOO_MANY_OPEN: Meaning = {
  kind: "SandboxLimit",
  hint: "too many files are open in the sandbox: end what holds them, or ask for less at the same time",
};
const NO_ROOM: Meaning = {
  kind: "SandboxLimit",
  hint: "the sandbox has no memory or processes left: end commands, or make it with more memoryMiB or pids",
};

/** What a caller can do about each way a file operation fails; what is not here becomes `InvalidArgument`. */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ENOENT: {
    kind: "NotFound",
    hint: "a part of the path does not exist, or a link leads nowhere: list the directory above it",
  },
  EACCES: { kind: "PermissionDenied", hint: "name a user who may: user, or --user on the command line" },
  EPERM: { kind: "PermissionDenied", hint: "only its owner or root may: name the user, as root:root or 0" },
  EROFS: { kind: "PermissionDenied", hint: "that part of the sandbox is the platform's and cannot be written" },
  EEXIST: { kind: "AlreadyExists", hint: "remove what is there first, or choose another name" },
  ENOTEMPTY: {
    kind: "FailedPrecondition",
    hint: "the directory has entries: remove it with recursive, or choose another name",
  },
  EXDEV: {
    kind: "FailedPrecondition",
    hint: "the two places are on different file systems, or the directory is from the image: run mv in the sandbox",
  },
  ESTALE: { kind: "FailedPrecondition", hint: "it changed while it was read: try again when nobody writes there" },
  EBUSY: {
    kind: "FailedPrecondition",
    hint: "something is mounted there, or a program holds it: unmount it or end the program",
  },
  ETXTBSY: {
    kind: "FailedPrecondition",
    hint: "it is a program that runs: end it, or write another file and move it there",
  },
  EUSERS: {
    kind: "SandboxLimit",
    hint: "more directories than one user may watch (fs.inotify.max_user_watches): watch a smaller tree",
  },
  ECANCELED: { kind: "Cancelled", hint: "the sender left before the end: send all of it again" },
  ENOSPC: DISK_FULL,
  EDQUOT: DISK_FULL,
  EFBIG: { kind: "SandboxLimit", hint: "larger than files may be here: see the fsize limit of the sandbox" },
  EMFILE: TOO_MANY_OPEN,
  ENFILE: TOO_MANY_OPEN,
  ENOMEM: NO_ROOM,
  EAGAIN: NO_ROOM,
  EIO: { kind: "Internal", hint: "the data could not be read or written: see dsec image layers, and the node's log" },
  ENOTDIR: {
    kind: "InvalidArgument",
    hint: "a part of the way is no directory, or a link: nothing is ever put through a link",
  },
  EISDIR: { kind: "InvalidArgument", hint: "it is a directory: list it, or use the calls for trees (dsec cp)" },
  ELOOP: {
    kind: "InvalidArgument",
    hint: "a link leads to itself, or through too many others: give the path it stands for",
  },
  ENAMETOOLONG: { kind: "InvalidArgument", hint: "a name has at most 255 bytes, a path 4095" },
  EINVAL: {
    kind: "InvalidArgument",
    hint: "no such user or group in the sandbox, or a kind of file that does not take this",
  },
};

/** What the agent says and Node has no name for. */
const FURTHER_NAMES: Readonly<Record<number, string>> = { 87: "EUSERS" };

/** `ENOENT`, …, and `errno 999` for a number that this system has no name for. */
export function errnoName(errno: number): string {
  const known = Object.entries(constants.errno).find(([, value]) => value === errno);
  return known?.[0] ?? FURTHER_NAMES[errno] ?? `errno ${errno}`;
}

/**
 * The typed form of an errno that ended a file operation; `what` is what the operation did, in words, `entry` what of a tree it was
 * at, as the sandbox says.
 */
export function errnoError(errno: number, what: string, entry?: string): SandboxError {
  const name = errnoName(errno);
  const { kind, hint } = MEANINGS[name] ?? { kind: "InvalidArgument", hint: undefined };
  return new SandboxError(kind, `${what}: ${name}${entry === undefined ? "" : ` at ${JSON.stringify(entry)}`}`, {
    details: { errno: name, ...(entry === undefined ? {} : { entry }) },
    ...(hint === undefined ? {} : { hint }),
  });
}
