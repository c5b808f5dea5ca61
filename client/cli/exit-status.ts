import { constants } from "node:os";
import { DsecError, type Result } from "#sdk";

/** Exit status when the platform failed, or was asked for something it does not understand: nothing is said about a command. */
export const PLATFORM_FAILURE = 125;

/** The exit status of this program for the end of a command: what a shell would show for the same end. */
export function exitStatusOf(status: Result["status"]): number {
  if (status.code !== undefined) return status.code;
  if (status.signal !== undefined) return 128 + signalNumber(status.signal);
  return PLATFORM_FAILURE;
}

/** The exit status of this program for a failure: 127 and 126 as shells have them, 125 for everything else. */
export function exitStatusOfError(error: unknown): number {
  if (error instanceof DsecError && error.kind === "CommandNotFound") return 127;
  if (error instanceof DsecError && error.kind === "CommandNotExecutable") return 126;
  return PLATFORM_FAILURE;
}

/** What the exit status alone does not say; undefined when it says it all. */
export function noteOn(status: Result["status"]): string | undefined {
  if (status.cause === "timeout") return "the command was killed at its time limit";
  if (status.cause === "out-of-memory") return "the command was killed: its sandbox has no memory left";
  if (status.cause === "sandbox-stopped") return "the sandbox was removed while the command ran";
  if (status.cause === "agent-lost") return "the sandbox died while the command ran";
  return undefined;
}

function signalNumber(name: string): number {
  const numbers: Readonly<Record<string, number>> = constants.signals;
  // Real-time signals have no name in Node: SIGRTMIN+n counts from 34 in what the kernel and glibc agree on.
  const realTime = /^SIGRTMIN(?:\+(\d+))?$/.exec(name);
  return numbers[name] ?? (realTime === null ? Number(/\d+$/.exec(name)?.[0] ?? 0) : 34 + Number(realTime[1] ?? 0));
}
