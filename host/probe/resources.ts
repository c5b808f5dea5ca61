import { existsSync, statfsSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname } from "node:path";
import { type Finding, type Look, missing, partial, works } from "./fact.ts";

const GIB = 1024 ** 3;

/** A base image with its tools takes about one; the volume needs room to write. */
const LEAST_DISK_BYTES = 2 * GIB;
const GOOD_DISK_BYTES = 10 * GIB;
const LEAST_MEMORY_BYTES = 1 * GIB;

/** Looks at how much of everything there is. */
export function resourceLooks(dataDir: string): readonly Look[] {
  return [
    {
      name: "disk space",
      why: "images, the sandboxes' files and command output live in the data directory",
      how: "free some, or set another data directory",
      look: () => lookAtDisk(dataDir),
    },
    {
      name: "memory",
      why: "sandboxes are admitted by the memory they were promised",
      how: "add memory, or ask for smaller sandboxes",
      look: lookAtMemory,
    },
  ];
}

function lookAtDisk(dataDir: string): Finding {
  let dir = dataDir;
  while (!existsSync(dir) && dir !== dirname(dir)) dir = dirname(dir);
  const { bavail, bsize } = statfsSync(dir);
  const free = bavail * bsize;
  const detail = `${(free / GIB).toFixed(1)} GiB free in ${dir}`;
  if (free < LEAST_DISK_BYTES) return missing(detail);
  return free < GOOD_DISK_BYTES ? partial(detail) : works(detail);
}

function lookAtMemory(): Finding {
  const detail = `${(totalmem() / GIB).toFixed(1)} GiB, ${availableParallelism()} processors`;
  return totalmem() < LEAST_MEMORY_BYTES ? partial(detail) : works(detail);
}
