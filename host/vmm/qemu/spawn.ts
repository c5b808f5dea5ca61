import { spawn } from "node:child_process";
import { chownSync, closeSync, mkdirSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { openBoundedMemory } from "#host/sys/bounded-memory.ts";
import { readMounts } from "#host/sys/mountinfo.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { COMPUTER_SOCKETS, type ComputerSpec } from "../computer.ts";
import { MACHINE_PORTS, type MachinePlace, type MachineProcess, type MachineSpec, ROOT_DIR } from "../vmm.ts";
import { APART, leaving, needlessMounts } from "./apart.ts";
import { computerWords } from "./computer-words.ts";
import { qemuWords } from "./words.ts";

/** Where QEMU takes orders, in the machine's directory. */
export const MONITOR_SOCKET = "monitor.sock";
/** Where QEMU writes the state of devices, in the machine's directory. */
export const DEVICES_OUT = `${ROOT_DIR}/devices`;
/** Where it puts pictures of a computer's screen, in the machine's directory. */
export const SCREEN_FILE = `${ROOT_DIR}/screen`;

/** Joins the cgroups whose files it is given, up to `--`, then becomes the program behind. */
const JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 71; shift; done; shift; exec "$@"';
/** Words before a program that has root's user, and may do nothing but become another. */
export const WITHOUT_RIGHTS: readonly string[] = [
  ...["setpriv", "--no-new-privs", "--inh-caps=-all"],
  ...["--bounding-set=-all,+setuid,+setgid,+sys_chroot", "--"],
];
/** Of the descriptors that the process is given. */
const FIRST_FD = 3;
/** What QEMU itself may say in its life; a guest can make it say things for ever. */
const SAID_BYTES = 64 * 1024;

/** QEMU, from its start until it is reached. Disposing lets go of what it says, which goes on being bounded. */
export interface SpawnedMonitor extends Disposable {
  readonly process: MachineProcess;
  /** What it has said so far. */
  readonly said: () => string;
}

/** Starts QEMU for a machine at a place, confined; it outlives this process. Resolves before it listens. */
export function spawnMachine(program: string, spec: MachineSpec, place: MachinePlace): SpawnedMonitor {
  const { dir } = place;
  using files = new DisposableStack();
  const given: number[] = [];
  const give = (path: string | undefined) =>
    path === undefined ? undefined : FIRST_FD - 1 + given.push(openFor(files, path, "r"));
  const isLent = spec.lender !== undefined && spec.memory.file?.access === "private";
  const lender = give(isLent ? spec.lender : undefined);
  const words = qemuWords(spec, {
    uid: place.uid,
    emptyDir: makeRootDir(place, [DEVICES_OUT]),
    monitor: join(dir, MONITOR_SOCKET),
    control: join(dir, MACHINE_PORTS.control),
    agent: join(dir, MACHINE_PORTS.agent),
    devicesIn: give(spec.devices),
    memory: give(isLent ? spec.memory.file?.path : undefined),
  });
  return spawnConfined([program, ...words], place, { fds: given, before: loading(lender) });
}

/** Words before a program that loads a library first, by its descriptor: what may read it here need not be able to there. */
export function loading(fd: number | undefined): readonly string[] {
  return fd === undefined ? [] : ["env", `LD_PRELOAD=/proc/self/fd/${fd}`];
}

/** Starts QEMU for a computer, as `spawnMachine` does. */
export function spawnComputer(program: string, spec: ComputerSpec, place: MachinePlace): SpawnedMonitor {
  const { dir, uid } = place;
  using files = new DisposableStack();
  const devices = spec.saved === undefined ? [] : [openFor(files, spec.saved.devices, "r")];
  const words = computerWords(spec, {
    uid,
    rootDir: makeRootDir(place, [DEVICES_OUT, SCREEN_FILE]),
    devicesIn: devices.length === 0 ? undefined : FIRST_FD,
    monitor: join(dir, MONITOR_SOCKET),
    display: join(dir, COMPUTER_SOCKETS.display),
    console: join(dir, COMPUTER_SOCKETS.console),
    control: join(dir, MACHINE_PORTS.control),
    agent: join(dir, MACHINE_PORTS.agent),
  });
  return spawnConfined([program, ...words], place, { fds: devices, before: [] });
}

/** Has the files that the monitor is asked to write, and nothing else. */
function makeRootDir({ dir, uid }: MachinePlace, files: readonly string[]): string {
  const rootDir = join(dir, ROOT_DIR);
  mkdirSync(rootDir, { recursive: true, mode: 0o755 });
  for (const file of files) {
    closeSync(openSync(join(dir, file), "w", 0o600));
    chownSync(join(dir, file), uid, uid);
  }
  return rootDir;
}

function openFor(files: DisposableStack, path: string, flags: string): number {
  const fd = openSync(path, flags, 0o600);
  files.defer(() => closeSync(fd));
  return fd;
}

/** The descriptors become those from `FIRST_FD` on; `before` are words before the program's. */
function spawnConfined(
  words: readonly string[],
  place: MachinePlace,
  { fds, before }: { readonly fds: readonly number[]; readonly before: readonly string[] },
): SpawnedMonitor {
  using files = new DisposableStack();
  const log = openBoundedMemory("dsec-qemu-log", SAID_BYTES);
  files.defer(() => closeSync(log));
  const apart = [...APART, ...leaving(needlessMounts(words, readMounts()))];
  const line = ["-c", JOIN, "sh", ...place.cgroups, "--", ...apart, ...WITHOUT_RIGHTS, ...before, ...words];
  const child = spawn("/bin/sh", line, {
    stdio: ["ignore", log, log, ...fds],
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    cwd: "/",
    detached: true,
  });
  child.on("error", () => {});
  child.unref();
  const startTicks = child.pid === undefined ? undefined : processStartTicks(child.pid);
  if (child.pid === undefined || startTicks === undefined) {
    throw new SandboxError("FailedPrecondition", "a machine's process cannot be started");
  }
  const kept = files.move();
  return {
    process: { pid: child.pid, startTicks },
    said: () => readSaid(log),
    [Symbol.dispose]: () => kept.dispose(),
  };
}

/** Up to where nothing was written yet. */
function readSaid(log: number): string {
  const bytes = Buffer.alloc(SAID_BYTES);
  readSync(log, bytes, 0, SAID_BYTES, 0);
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end < 0 ? SAID_BYTES : end);
}
