import { closeSync, fstatSync, openSync, readSync, truncateSync } from "node:fs";
import { basename, join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { Qmp } from "./qmp.ts";
import { DEVICES_OUT } from "./spawn.ts";

/** Some hundred KiB; a guest may have taken QEMU over, and the file is its to write. */
const MOST_BYTES = 64 * 1024 * 1024;

/**
 * The state of a stopped machine's devices; its monitor runs at the directory. QEMU is told a name: descriptors that it was given go when nobody talks to it, as
 * while a node starts anew.
 */
export async function saveDevices(qmp: Qmp, dir: string): Promise<Buffer> {
  const path = join(dir, DEVICES_OUT);
  await qmp.order("xen-save-devices-state", { filename: `/${basename(DEVICES_OUT)}`, live: false });
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    if (size > MOST_BYTES) throw new SandboxError("Internal", "QEMU gives no state of devices");
    const state = Buffer.alloc(size);
    if (readSync(fd, state, 0, size, 0) !== size)
      throw new SandboxError("Internal", "the state of devices was cut short");
    return state;
  } finally {
    closeSync(fd);
    truncateSync(path, 0);
  }
}
