import type { SandboxId } from "#core/ids.ts";

/** What a backend measures of one sandbox, counted from its creation. What this host does not count is `undefined`, never zero. */
export interface Usage {
  readonly cpu: CpuUsage;
  readonly memory: MemoryUsage;
  /** Processes of the sandbox killed because there was no memory left. */
  readonly oomKills: number;
  /** The last of them that the kernel's log tells of, oldest first, at most `MAX_OOM_VICTIMS`; none where it cannot be read. */
  readonly oomVictims: readonly OomVictim[];
  /** Processes and threads of everything the agent started. */
  readonly pids: number;
  /** What the sandbox has written and not removed, with the file system's own structures. */
  readonly diskBytes: number | undefined;
  readonly io: IoUsage | undefined;
  readonly network: NetworkUsage | undefined;
  /** What its machine takes of the node's memory; undefined for what has none of its own, or none at the moment. */
  readonly machine?: MachineMemory | undefined;
}

/** The node's memory that the process of a machine has. */
export interface MachineMemory {
  /** Its own: what the guest has written, and what the monitor needs to run it. */
  readonly privateBytes: number;
  /** Pages of files, which the node holds once for all that map them: the template's memory, the monitor's program. */
  readonly sharedBytes: number;
}

/** So many are told of a sandbox. */
export const MAX_OOM_VICTIMS = 16;

/** A process that was killed because there was no memory left. */
export interface OomVictim {
  /** As the kernel has it: the first 15 bytes of the program's file name, unless it calls itself otherwise. */
  readonly program: string;
  readonly atMs: number;
  /** What it held when it was killed. */
  readonly residentBytes: number;
  /** Whose memory had run out: the sandbox was at its limit, or the whole node had none left. */
  readonly full: "sandbox" | "node";
}

/** Processor time, of every process alive or ended. */
export interface CpuUsage {
  readonly totalMs: number;
  readonly userMs: number;
  readonly systemMs: number;
  /** How long processes that could have run were held back by the limit. */
  readonly throttledMs: number;
}

/** Memory as the limit counts it: page cache and files of /dev/shm included. */
export interface MemoryUsage {
  readonly bytes: number;
  /** Highest so far; zero where the kernel does not keep it (cgroup v2 before Linux 5.19). */
  readonly peakBytes: number;
  readonly swapBytes: number;
}

/** Input and output of processes: bytes fetched from and meant for storage, and calls of any kind (pipes and sockets, too). */
export interface IoUsage {
  readonly readBytes: number;
  readonly writeBytes: number;
  readonly readCalls: number;
  readonly writeCalls: number;
}

/** What went through the network devices of the sandbox, its loopback included. */
export interface NetworkUsage {
  readonly receivedBytes: number;
  readonly receivedPackets: number;
  readonly sentBytes: number;
  readonly sentPackets: number;
}

/** What one sandbox uses at one moment, beside what it may use. */
export interface SandboxUsage extends Usage {
  readonly id: SandboxId;
  readonly atMs: number;
  readonly limits: {
    readonly cpus: number;
    readonly memoryBytes: number;
    readonly swapBytes: number;
    readonly pids: number;
    readonly diskBytes: number | undefined;
  };
  readonly commands: {
    readonly running: number;
    /** Those whose record is kept, running ones included. */
    readonly recorded: number;
  };
}
