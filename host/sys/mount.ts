import { libcFunction } from "#host/sys/libc.ts";

// biome-ignore format: a table is read by column
/** Flags of mount(2). */
export const MS = {
  RDONLY: 1, NOSUID: 2, NODEV: 4, NOEXEC: 8, REMOUNT: 32, NOATIME: 1024, BIND: 4096, REC: 16384, PRIVATE: 1 << 18,
} as const;

/** Flags of umount2(2). */
export const MNT = { FORCE: 1, DETACH: 2, EXPIRE: 4, NOFOLLOW: 8 } as const;

/** mount(2). `data` is the option text of the file system. Throws a `SystemError` (`ENOENT`, `EBUSY`, …). */
export function mount(source: string, target: string, fstype: string, flags = 0, data = ""): void {
  mount2(source, target, fstype, flags, data === "" ? null : data);
}

/** Moves propagation of a mount, or remounts it: no source, type or data of its own. */
export function changeMount(target: string, flags: number): void {
  mount2("none", target, null, flags, null);
}

/** umount2(2). A target that is a link is never followed. Throws `EINVAL` when nothing is mounted there. */
export function unmount(target: string, flags = 0): void {
  umount2(target, flags | MNT.NOFOLLOW);
}

const mount2 = libcFunction<[string, string, string | null, number, string | null]>("mount", [
  "text",
  "text",
  "text",
  "ulong",
  "text",
]);
const umount2 = libcFunction<[string, number]>("umount2", ["text", "int"]);
