import { constants } from "node:os";
import { type ErrorKind, SandboxError } from "#core/errors.ts";

interface Meaning {
  readonly kind: ErrorKind;
  readonly hint: string;
}

const NODE_FULL: Meaning = {
  kind: "NodeFull",
  hint: "try another node, or raise user.max_*_namespaces, fs.file-max or fs.mount-max on this one",
};
const UNMAPPED_UPPER: Meaning = {
  kind: "FailedPrecondition",
  hint: "the file system of the node's uppers takes no id maps: put the data directory on btrfs, ext4 or xfs",
};
const BAD_IMAGE: Meaning = {
  kind: "FailedPrecondition",
  hint: "/proc, /sys and /dev of an image must be directories, and /etc/hosts, hostname and resolv.conf files",
};

/** What each errno means to a caller wherever it comes up. */
const BY_ERRNO: Readonly<Record<string, Meaning>> = {
  EDQUOT: { kind: "SandboxLimit", hint: "give the sandbox a larger disk limit" },
  ENOSPC: { kind: "StorageFull", hint: "free space on the node's volume" },
  EROFS: { kind: "StorageFull", hint: "the node's volume is full or read-only: see the host's kernel log" },
  EMFILE: NODE_FULL,
  ENFILE: NODE_FULL,
  EAGAIN: NODE_FULL,
  ENOMEM: NODE_FULL,
  ENOSYS: { kind: "FailedPrecondition", hint: "this kernel lacks what containers need: run the doctor" },
};

/** What of the host a step names by its path: nothing for the caller, who may be anybody with a token. */
const HOST_PATH = /^(agent cgroup|cgroup|layer|upper|clone|socket) \/.*?(?=: [a-z]|$)/;

/** The typed error for a create that stopped at `stage` with `errno`. Facts are in its details, paths of the host in its cause. */
export function createFailure(id: string, stage: string, errno: number): SandboxError {
  const code = errnoName(errno);
  const meaning = meaningOf(stage, code);
  const shown = stage.replace(HOST_PATH, "$1");
  return new SandboxError(meaning.kind, `cannot make sandbox ${id}: ${shown}: ${code}`, {
    hint: meaning.hint,
    details: { stage: shown, errno: code },
    cause: new Error(stage),
  });
}

/** `ENOENT`, …; the number itself when it has no name. */
export function errnoName(errno: number): string {
  const named = Object.entries(constants.errno).find(([, value]) => value === errno);
  return named?.[0] ?? `errno ${errno}`;
}

function meaningOf(stage: string, code: string): Meaning {
  // Both are limits of the kernel, not of a disk.
  if (code === "ENOSPC" && /^(clone|mount|move|bind|mask|stage)\b/.test(stage)) return NODE_FULL;
  if (/^place of /.test(stage) && ["ENOTDIR", "ELOOP", "EXDEV", "EEXIST", "EISDIR"].includes(code)) return BAD_IMAGE;
  if (code === "EINVAL" && stage === "shift the ids of the upper") return UNMAPPED_UPPER;
  if (code === "EEXIST" || code === "EADDRINUSE") {
    return {
      kind: "FailedPrecondition",
      hint: "something of an earlier sandbox with this id is left: destroy it first",
    };
  }
  return BY_ERRNO[code] ?? { kind: "Internal", hint: "see the node's log" };
}
