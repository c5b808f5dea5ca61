import { readFileSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import type { IoUsage, NetworkUsage } from "#core/usage.ts";

const NO_IO: IoUsage = { readBytes: 0, writeBytes: 0, readCalls: 0, writeCalls: 0 };

/**
 * Input and output of these processes and of all children that they have waited for: a parent takes over what its dead
 * children did, so an init and all that is alive below it make the whole. `undefined` when the kernel does not account it.
 */
export function processIo(pids: readonly number[]): IoUsage | undefined {
  let sum = NO_IO;
  let isCounted = false;
  for (const pid of pids) {
    const text = readProcess(pid, "io");
    if (text === undefined) continue;
    isCounted = true;
    const value = (key: string) => Number(new RegExp(`^${key}: (\\d+)$`, "m").exec(text)?.[1] ?? 0);
    sum = {
      readBytes: sum.readBytes + value("read_bytes"),
      writeBytes: sum.writeBytes + value("write_bytes"),
      readCalls: sum.readCalls + value("syscr"),
      writeCalls: sum.writeCalls + value("syscw"),
    };
  }
  return isCounted ? sum : undefined;
}

/** The sum over all devices of the network namespace that a process is in; `undefined` when it is gone. */
export function networkOf(pid: number): NetworkUsage | undefined {
  const text = readProcess(pid, "net/dev");
  if (text === undefined) return undefined;
  const sum = { receivedBytes: 0, receivedPackets: 0, sentBytes: 0, sentPackets: 0 };
  for (const line of text.split("\n").slice(2)) {
    // The name ends at the last colon; eight counters of what came in, then eight of what went out.
    const counters = line
      .slice(line.lastIndexOf(":") + 1)
      .trim()
      .split(/ +/)
      .map(Number);
    if (counters.length < 16) continue;
    sum.receivedBytes += counters[0] ?? 0;
    sum.receivedPackets += counters[1] ?? 0;
    sum.sentBytes += counters[8] ?? 0;
    sum.sentPackets += counters[9] ?? 0;
  }
  return sum;
}

function readProcess(pid: number, file: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EINVAL")) return undefined;
    throw error;
  }
}
