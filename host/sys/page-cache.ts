import { libcFunction } from "#host/sys/libc.ts";

const [SYS_CACHESTAT, PAGE_BYTES] = [451, 4096];
const DONT_NEED = 4;
/** Five numbers, of which the first counts pages that are there. */
const STAT_BYTES = 40;

/** Bytes of an open file that the kernel keeps in memory, whoever has it open; needs Linux 6.5. */
export function cachedBytes(fd: number): number {
  // Offset and length: a length of 0 means up to the end.
  const [range, stat] = [Buffer.alloc(16), Buffer.alloc(STAT_BYTES)];
  cachestat(SYS_CACHESTAT, fd, range, stat, 0);
  return Number(stat.readBigUInt64LE(0)) * PAGE_BYTES;
}

/** Lets the kernel forget what it keeps of an open file, but for what a process has mapped or nobody has written out. */
export function forgetCached(fd: number): void {
  fadvise(fd, 0, 0, DONT_NEED);
}

const cachestat = libcFunction<[number, number, Uint8Array, Uint8Array, number]>(
  "syscall",
  ["long", "int", "buffer", "buffer", "int"],
  "cachestat",
  "long",
);
const fadvise = libcFunction<[number, number, number, number]>("posix_fadvise", ["int", "long", "long", "int"]);
