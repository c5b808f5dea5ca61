import { libcFunction, libcFunctionLater } from "#host/sys/libc.ts";

/** ioctl(2) with a structure in memory that the kernel reads and may fill. Returns the call's own result. */
export const ioctl = libcFunction<[number, number, Uint8Array]>("ioctl", ["int", "ulong", "buffer"]);

/** The same without keeping the caller, for what waits for a disk. */
export const ioctlLater = libcFunctionLater<[number, number, Uint8Array]>("ioctl", ["int", "ulong", "buffer"]);

/** ioctl(2) with a plain number, or nothing, as its argument. */
export const ioctlNumber = libcFunction<[number, number, number]>("ioctl", ["int", "ulong", "long"]);

/** Request numbers as `_IOR`, `_IOW` and `_IOWR` of the kernel make them; the same on x86-64 and arm64. */
export function ioctlRequest(direction: "none" | "write" | "read" | "both", type: number, nr: number, size: number) {
  const bits = { none: 0, write: 1, read: 2, both: 3 }[direction];
  return bits * 2 ** 30 + size * 2 ** 16 + type * 2 ** 8 + nr;
}
