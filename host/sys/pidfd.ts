import { closeSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { libcFunction } from "#host/sys/libc.ts";
import { processStartTicks } from "#host/sys/process.ts";

/**
 * Sends a signal to exactly the process that had this id when it started at `startTicks`: never to a later process that
 * got the same number. False when that process is gone.
 */
export function signalProcess(pid: number, startTicks: number, signal: number): boolean {
  let fd: number;
  try {
    fd = pidfdOpen(pid, 0);
  } catch (error) {
    if (hasCode(error, "ESRCH", "EINVAL")) return false;
    throw error;
  }
  try {
    // The descriptor pins the process: when the start time still matches after the open, it is the right one.
    if (processStartTicks(pid) !== startTicks) return false;
    pidfdSendSignal(fd, signal, null, 0);
    return true;
  } catch (error) {
    if (hasCode(error, "ESRCH")) return false;
    throw error;
  } finally {
    closeSync(fd);
  }
}

/** A copy of a descriptor of exactly this process; `undefined` when the process is gone or has no such descriptor. */
export function copyDescriptor(pid: number, startTicks: number, descriptor: number): number | undefined {
  try {
    const fd = pidfdOpen(pid, 0);
    try {
      return processStartTicks(pid) === startTicks ? pidfdGetfd(SYS_PIDFD_GETFD, fd, descriptor, 0) : undefined;
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (hasCode(error, "ESRCH", "EINVAL", "EBADF")) return undefined;
    throw error;
  }
}

// The same numbers on x86-64 and arm64; glibc before 2.36 has no wrapper.
const SYS_PIDFD_SEND_SIGNAL = 424;
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_GETFD = 438;

const pidfdOpenRaw = libcFunction<[number, number, number]>("syscall", ["long", "int", "int"], "pidfd_open");
const pidfdSendRaw = libcFunction<[number, number, number, null, number]>(
  "syscall",
  ["long", "int", "int", "buffer", "int"],
  "pidfd_send_signal",
);

const pidfdGetfd = libcFunction<[number, number, number, number]>(
  "syscall",
  ["long", "int", "int", "int"],
  "pidfd_getfd",
);

function pidfdOpen(pid: number, flags: number): number {
  return pidfdOpenRaw(SYS_PIDFD_OPEN, pid, flags);
}

function pidfdSendSignal(fd: number, signal: number, info: null, flags: number): void {
  pidfdSendRaw(SYS_PIDFD_SEND_SIGNAL, fd, signal, info, flags);
}
