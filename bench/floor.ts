import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";

const PROGRAM = join(import.meta.dirname, "../.build/floor");

/** Milliseconds of each of `count` containers over `rootfs` that do the least a container can do. */
export function measureFloor(rootfs: string, count: number): number[] {
  if (!existsSync(PROGRAM)) throw new Error("the floor is not built: make -C bench/floor");
  // In memory: a disk's file system would raise the floor.
  const uppers = mkdtempSync("/dev/shm/dsec-floor-");
  try {
    const micros: unknown = JSON.parse(execFileSync(PROGRAM, [String(count), rootfs, uppers], { encoding: "utf8" }));
    if (!Array.isArray(micros) || micros.length !== count) throw new Error("the floor did not print its times");
    return micros.map((value) => Number(value) / 1_000);
  } finally {
    rmSync(uppers, { recursive: true });
  }
}
