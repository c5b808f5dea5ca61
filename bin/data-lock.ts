import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { tryFlock } from "#host/sys/flock.ts";

/**
 * Makes this process the only node on a data directory. Throws `FailedPrecondition` that names the other one. The lock goes
 * with the process, so what a killed node leaves behind stops nobody.
 */
export function lockDataDir(dataDir: string): Disposable {
  const file = join(dataDir, "node.lock");
  const fd = openSync(file, "a+", 0o600);
  if (!tryFlock(fd, "exclusive")) {
    closeSync(fd);
    const pid = readFileSync(file, "utf8").trim();
    throw new SandboxError("FailedPrecondition", `another node uses ${dataDir}: process ${pid}`, {
      hint: "stop it with dsec down, or give this one its own --data-dir and --run-dir",
      details: { pid: Number(pid), dataDir },
    });
  }
  ftruncateSync(fd);
  writeSync(fd, `${process.pid}\n`);
  return { [Symbol.dispose]: () => closeSync(fd) };
}
