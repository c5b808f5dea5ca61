import { closeSync, openSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { ioctl, ioctlNumber } from "#host/sys/ioctl.ts";

const LOOP_CTL_GET_FREE = 0x4c82;
const LOOP_CONFIGURE = 0x4c0a;
const LO_FLAGS = { readOnly: 1, autoclear: 4, directIo: 16 } as const;

/** Two processes may be handed the same free device; the loser asks again. Each round somebody wins. */
const MAX_ROUNDS = 64;

/** An attached loop device: its file stays attached while it is mounted or this is open. */
export interface LoopDevice extends Disposable {
  readonly path: string;
  readonly directIo: boolean;
}

/** How a file is attached. */
export interface LoopOptions {
  readonly readOnly: boolean;
  /** Bypass the host's page cache for the file: no double caching. Falls back to buffered where the file refuses it. */
  readonly directIo: boolean;
}

/**
 * Attaches a file to a free loop device that detaches itself when its last user goes. Mount `path`, then dispose: the mount
 * keeps it. Throws a `SystemError`; `ENOENT` means that this kernel has no loop devices.
 */
export function attachLoop(file: string, options: LoopOptions): LoopDevice {
  const backing = openSync(file, options.readOnly ? "r" : "r+");
  try {
    return attachFd(backing, options);
  } catch (error) {
    if (!options.directIo || !hasCode(error, "EINVAL", "EOPNOTSUPP")) throw error;
    return attachFd(backing, { ...options, directIo: false });
  } finally {
    closeSync(backing);
  }
}

function attachFd(backing: number, options: LoopOptions): LoopDevice {
  const config = loopConfig(backing, options);
  for (let round = 0; ; round += 1) {
    const path = `/dev/loop${freeIndex()}`;
    const fd = openSync(path, options.readOnly ? "r" : "r+");
    try {
      ioctl(fd, LOOP_CONFIGURE, config);
      return { path, directIo: options.directIo, [Symbol.dispose]: () => closeSync(fd) };
    } catch (error) {
      closeSync(fd);
      if (!hasCode(error, "EBUSY") || round === MAX_ROUNDS) throw error;
    }
  }
}

function freeIndex(): number {
  const control = openSync("/dev/loop-control", "r+");
  try {
    return ioctlNumber(control, LOOP_CTL_GET_FREE, 0);
  } finally {
    closeSync(control);
  }
}

/** `struct loop_config`: fd, block size, then `struct loop_info64` with its flags at byte 52, padded to 304 bytes. */
function loopConfig(backing: number, options: LoopOptions): Uint8Array {
  const config = Buffer.alloc(304);
  config.writeUInt32LE(backing, 0);
  // A block of 4096 lets the kernel use direct I/O on any backing file system.
  config.writeUInt32LE(4096, 4);
  const flags =
    LO_FLAGS.autoclear | (options.readOnly ? LO_FLAGS.readOnly : 0) | (options.directIo ? LO_FLAGS.directIo : 0);
  config.writeUInt32LE(flags, 8 + 52);
  return config;
}
