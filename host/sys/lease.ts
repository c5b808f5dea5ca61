import { hasCode } from "#core/errors.ts";
import { libcFunction } from "#host/sys/libc.ts";

const F_SETLEASE = 1024;
const F_WRLCK = 1;
const F_UNLCK = 2;

/**
 * Proves that nobody else has the file open, mounts among them, whoever asks: `undefined` when somebody has. The descriptor must
 * be open for writing. Until it is disposed, an open of the file waits; the kernel then sends this process SIGIO, which by default ends it.
 */
export function takeWriteLease(fd: number): Disposable | undefined {
  try {
    fcntl(fd, F_SETLEASE, F_WRLCK);
  } catch (error) {
    if (hasCode(error, "EAGAIN")) return undefined;
    throw error;
  }
  return { [Symbol.dispose]: () => void fcntl(fd, F_SETLEASE, F_UNLCK) };
}

const fcntl = libcFunction<[number, number, number]>("fcntl", ["int", "int", "long"]);
