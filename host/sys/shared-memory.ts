import { createRequire } from "node:module";
import { SystemError } from "#host/sys/libc.ts";

const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MAP_FAILED = 2n ** 64n - 1n;

/**
 * The bytes of an open file as memory that every process shares which maps it: what one wrote is there for the others even when
 * it is killed at once. The file keeps its size as long as anybody maps it. The mapping lasts until this process ends.
 */
export function mapShared(fd: number, bytes: number): Buffer {
  const koffi = createRequire(import.meta.url)("koffi") as typeof import("koffi");
  const mmap = koffi.load(null).func("mmap", "void *", ["void *", "size_t", "int", "int", "int", "int64_t"]);
  const address = mmap(null, bytes, PROT_READ_WRITE, MAP_SHARED, fd, 0);
  if (koffi.address(address) === MAP_FAILED) throw new SystemError(koffi.errno(), "mmap");
  return Buffer.from(koffi.view(address, bytes));
}
