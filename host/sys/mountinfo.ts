import { readFileSync } from "node:fs";

/** One mount as this process sees it. */
export interface MountEntry {
  /** Directory of the file system that is mounted, `/` for its root. */
  readonly root: string;
  readonly target: string;
  readonly fstype: string;
  readonly source: string;
  /** Options of the mount and of its file system, without order. */
  readonly options: readonly string[];
}

/** Mounts of this process's namespace, in mounting order. */
export function readMounts(file = "/proc/self/mountinfo"): readonly MountEntry[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map(parseMount);
}

/** The topmost mount whose target is exactly this path. */
export function mountAt(target: string, mounts = readMounts()): MountEntry | undefined {
  return mounts.findLast((entry) => entry.target === target);
}

/** One line: `id parent major:minor root target options optional… - type source superOptions`. */
export function parseMount(line: string): MountEntry {
  const fields = line.split(" ");
  const dash = fields.indexOf("-", 6);
  const [fstype = "", source = "", superOptions = ""] = fields.slice(dash + 1);
  return {
    root: unescapePath(fields[3] ?? ""),
    target: unescapePath(fields[4] ?? ""),
    fstype,
    source: unescapePath(source),
    options: [...(fields[5] ?? "").split(","), ...superOptions.split(",")],
  };
}

/** The kernel writes space, tab, newline and backslash of a path as three octal digits. */
function unescapePath(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
