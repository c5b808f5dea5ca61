import { closeSync, openSync } from "node:fs";
import { tryFlock } from "#host/sys/flock.ts";

/** Takes an advisory lock without waiting: undefined when somebody holds it. It goes with the process, however that ends. */
export function tryLockFile(file: string): Disposable | undefined {
  const fd = openSync(file, "a", 0o600);
  if (tryFlock(fd, "exclusive")) return { [Symbol.dispose]: () => closeSync(fd) };
  closeSync(fd);
  return undefined;
}
