import { libcFunction } from "#host/sys/libc.ts";
import { changeMount, MS } from "#host/sys/mount.ts";

const CLONE_NEWNS = 0x20000;

/**
 * Gives the calling *thread* a mount namespace of its own, from which nothing spreads: what it mounts goes with it. Only for
 * a Worker that uses synchronous calls of `node:fs`; asynchronous ones run in other threads.
 */
export function enterPrivateMounts(): void {
  unshare(CLONE_NEWNS);
  changeMount("/", MS.REC | MS.PRIVATE);
}

const unshare = libcFunction<[number]>("unshare", ["int"]);
