import { hasCode } from "#core/errors.ts";
import type { Extent } from "#core/tree.ts";
import { libcFunction } from "#host/sys/libc.ts";

const SEEK_DATA = 3;
const SEEK_HOLE = 4;

/**
 * What of an open file is data, in order, up to `size`; the rest is holes. Moves the position of the descriptor. A file system
 * that knows no holes has one extent.
 */
export function* dataExtents(fd: number, size: number): Generator<Extent, void, undefined> {
  for (let at = 0; at < size; ) {
    const offset = seekData(fd, at);
    if (offset === undefined || offset >= size) return;
    const end = Math.min(size, lseek(fd, offset, SEEK_HOLE));
    yield { offset, size: end - offset };
    at = end;
  }
}

/** `undefined`: there is none from here on. */
function seekData(fd: number, at: number): number | undefined {
  try {
    return lseek(fd, at, SEEK_DATA);
  } catch (error) {
    if (hasCode(error, "ENXIO")) return undefined;
    throw error;
  }
}

const lseek = libcFunction<[number, number, number]>("lseek", ["int", "long", "int"], "lseek", "long");
