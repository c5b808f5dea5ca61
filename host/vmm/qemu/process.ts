import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";
import { findProgram } from "#host/programs.ts";
import { signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import type { MachineProcess } from "../vmm.ts";
import { connectQmp, type Qmp } from "./qmp.ts";
import { MONITOR_SOCKET, type SpawnedMonitor } from "./spawn.ts";

const PROGRAM = "qemu-system-x86_64";
const SIGKILL = 9;
/** QEMU listens within a fraction of a second of processor time; a loaded machine takes its time. */
const START_LIMIT_MS = 30_000;
const END_LIMIT_MS = 15_000;
const PAUSE_MS = 5;

/** The QEMU of this host. `FailedPrecondition` when there is none. */
export function findQemu(): string {
  const program = findProgram(PROGRAM);
  if (program !== undefined) return program;
  throw new SandboxError("FailedPrecondition", "this node runs no virtual machines: QEMU is not installed", {
    hint: "apt-get install qemu-system-x86",
  });
}

/** With its version, since what one saves another may not take. */
export async function nameOf(program: string): Promise<string> {
  const { stdout } = await promisify(execFile)(program, ["--version"]);
  return `qemu ${/version (\S+)/.exec(stdout)?.[1] ?? "of unknown version"}`;
}

/** Waits until QEMU takes orders. What it says instead is the reason for its end. */
export async function reachMonitor(
  dir: string,
  { process, said }: Pick<SpawnedMonitor, "process" | "said">,
  signal: AbortSignal,
): Promise<Qmp> {
  for (const giveUpAtMs = performance.now() + START_LIMIT_MS; ; ) {
    signal.throwIfAborted();
    try {
      return await connectQmp(join(dir, MONITOR_SOCKET));
    } catch (error) {
      // One that ends while it is being reached says why in its log.
      if (!hasCode(error, "ENOENT", "ECONNREFUSED", "ECONNRESET", "EPIPE") && !isLost(error)) throw error;
    }
    if (!isAlive(process)) throw notStarted(said().slice(-1_000));
    if (performance.now() > giveUpAtMs) throw new SandboxError("Unavailable", "QEMU does not take orders");
    await delay(PAUSE_MS);
  }
}

function isLost(error: unknown): boolean {
  return error instanceof SandboxError && error.kind === "SandboxLost";
}

function notStarted(said: string): SandboxError {
  if (!/cannot (set up guest|allocate) memory/i.test(said))
    return new SandboxError("Internal", `QEMU does not start: ${said}`);
  return new SandboxError("NodeFull", "this node has not as much memory as the machine asks for", {
    hint: "ask for less, or for another node",
    details: { said },
  });
}

/** Whether this very process runs; a zombie does not. */
export function isAlive({ pid, startTicks }: MachineProcess): boolean {
  return processStartTicks(pid) === startTicks;
}

/** The process of a sandbox's machine, which must run. Throws `SandboxLost`. */
export function liveProcess(id: string, process: MachineProcess | undefined): MachineProcess {
  if (process === undefined || !isAlive(process)) throw lostMachine(id);
  return process;
}

/** Of a sandbox whose machine does not run any more. */
export function lostMachine(id: string, cause?: unknown): SandboxError {
  return new SandboxError("SandboxLost", `the machine of ${id} is gone`, cause === undefined ? {} : { cause });
}

/** Ends it at once, and waits for that; safe twice. `Unavailable` when it does not die. */
export async function endProcess(process: MachineProcess): Promise<void> {
  const giveUpAtMs = performance.now() + END_LIMIT_MS;
  if (!signalProcess(process.pid, process.startTicks, SIGKILL)) return;
  while (isAlive(process)) {
    if (performance.now() > giveUpAtMs) throw new SandboxError("Unavailable", `QEMU ${process.pid} does not die`);
    await delay(PAUSE_MS);
  }
}
