import type { Accelerator } from "#core/sandbox.ts";

export type { Accelerator };

/**
 * Runs virtual machines on this host. A *machine* is one process of the monitor (the VMM), in a cgroup and namespaces of its own, as a
 * user that has nothing else. What it may touch is opened before its guest runs; it has no network.
 *
 * The life of one: `start` → `run` → (`pause` → `saveDevices` or `run`)* → `end`. Memory and disks belong to the caller: a machine that
 * starts from saved devices, with the memory and the disks of that moment, goes on from there.
 */
export interface Vmm {
  /** With its version, since what one saves another may not take: `qemu 7.2.22`. */
  readonly name: string;
  /** Names everything that must be equal in a machine for it to go on from the devices of another; files are not looked at. */
  identity(spec: MachineSpec): string;
  /**
   * Starts the monitor and resolves when it takes orders; the guest waits for `run`. Rejects with `FailedPrecondition` when this host
   * cannot, and then nothing of the machine runs.
   */
  start(spec: MachineSpec, place: MachinePlace, signal: AbortSignal): Promise<Machine>;
  /** A machine that another process started at this place, if it still runs. */
  adopt(place: Pick<MachinePlace, "dir">, process: MachineProcess): Promise<Machine | undefined>;
}

/** What a machine is made of. Paths are absolute. */
export interface MachineSpec {
  readonly accelerator: Accelerator;
  readonly processors: number;
  readonly memory: MachineMemory;
  readonly kernel: string;
  readonly initramfs: string;
  readonly disks: readonly MachineDisk[];
  /** What the guest has in its address space, in the order in which it counts them: the first is `pmem0`. */
  readonly regions: readonly MachineRegion[];
  /** A file with what `saveDevices` gave of an equal machine. Without it the kernel boots. */
  readonly devices: string | undefined;
  /**
   * The library that lends a monitor its memory file: with it, pages that the guest frees go back to the host. Undefined: they stay until the machine
   * ends.
   */
  readonly lender: string | undefined;
}

/**
 * The guest's memory: a file, or the process's own without one. Private: what the guest writes stays in the process, and the file
 * as it is.
 */
export interface MachineMemory {
  readonly sizeMiB: number;
  readonly file?: { readonly path: string; readonly access: "shared" | "private" };
}

/**
 * A disk, by the serial number that the guest finds it by: at most 20 bytes. Without a file it is a place that is kept for one: the
 * guest sees an empty disk as large as any, and a machine that goes on from there may have a file in that place.
 */
export interface MachineDisk {
  readonly serial: string;
  readonly file: string | undefined;
  readonly access: "read" | "write";
}

/**
 * A file that lies in the guest's address space as persistent memory, so that whoever maps or reads it there shares the host's one copy.
 * It is read only: what a guest writes there is dropped. Its size is a multiple of `REGION_STEP_BYTES`, and the file has no less.
 */
export interface MachineRegion {
  /** Undefined: any file. */
  readonly file: string | undefined;
  readonly sizeBytes: number;
}

/** What a guest's kernel maps memory by. */
export const REGION_STEP_BYTES = 2 * 1024 * 1024;

/** Most disks and regions that a machine has places for. */
export const MOST_DISKS = 216;

/** Where a machine lives and what bounds it. */
export interface MachinePlace {
  /** Holds its sockets, and what is said about it; nobody but root gets in. */
  readonly dir: string;
  /** User and group of the process; nothing else may have it. */
  readonly uid: number;
  /** Files that a process joins the machine's cgroups by. */
  readonly cgroups: readonly string[];
}

/** The pair names one process for good, however pids are reused. */
export interface MachineProcess {
  readonly pid: number;
  readonly startTicks: number;
}

/** The serial ports of a machine, as sockets in its directory: lines for its first process, frames for the agent. */
export const MACHINE_PORTS = { control: "control.sock", agent: "agent.sock" } as const;
/** What a monitor sees of the host by name, in the machine's directory: the files that it is asked to write. */
export const ROOT_DIR = "empty";

/** A machine that was started. Orders are carried out one after the other; each rejects with `SandboxLost` when the monitor is gone. */
export interface Machine {
  readonly process: MachineProcess;
  /** Resolves when the guest has ended, or the monitor has, with what the guest said last. */
  readonly ended: Promise<string>;
  run(): Promise<void>;
  /** Stops the processors, and writes out what disks have taken. */
  pause(): Promise<void>;
  /** Of a paused machine: the state of its devices. Memory is as it lies. */
  saveDevices(): Promise<Buffer>;
  /** The last that the guest wrote to its console, at most 64 KiB. */
  console(): Promise<string>;
  /** Stops talking to the monitor, which another process may adopt then. */
  leave(): void;
  /** Ends the monitor at once; safe twice. */
  end(): Promise<void>;
}
