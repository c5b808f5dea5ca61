import { libcFunction } from "#host/sys/libc.ts";

const WILL_NEED = 3;

/** Lets the kernel begin to read the first bytes of an open file; does not wait for them. Advice: a kernel that cannot take it says nothing. */
export function readSoon(fd: number, bytes: number): void {
  fadvise(fd, 0, bytes, WILL_NEED);
}

const fadvise = libcFunction<[number, number, number, number]>("posix_fadvise", ["int", "long", "long", "int"]);
