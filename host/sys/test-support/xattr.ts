import { libcFunction } from "#host/sys/libc.ts";

/** Sets an extended attribute of a path itself, never of what a link points to. Throws `ENOTSUP`, `EPERM`, `ENOSPC`, … */
export function setXattr(path: string, name: string, value: Uint8Array): void {
  lsetxattr(path, name, value, value.length, 0);
}

const lsetxattr = libcFunction<[string, string, Uint8Array, number, number]>("lsetxattr", [
  "text",
  "text",
  "buffer",
  "ulong",
  "int",
]);
