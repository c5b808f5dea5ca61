import { hasCode } from "#core/errors.ts";
import { libcFunction } from "#host/sys/libc.ts";

const LOCK = { shared: 1, exclusive: 2, unlock: 8 } as const;
const NONBLOCK = 4;

/**
 * Takes (or drops) the advisory lock of an open file without waiting: false when somebody else holds it. It goes with the
 * last descriptor of this opening, so a process that dies leaves none.
 */
export function tryFlock(fd: number, mode: keyof typeof LOCK): boolean {
  try {
    flock(fd, LOCK[mode] | NONBLOCK);
    return true;
  } catch (error) {
    if (hasCode(error, "EAGAIN")) return false;
    throw error;
  }
}

const flock = libcFunction<[number, number]>("flock", ["int", "int"]);
