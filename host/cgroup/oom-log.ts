import { closeSync, constants, openSync, readSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { MAX_OOM_VICTIMS, type OomVictim } from "#core/usage.ts";

/** The kernel gives no record longer than this. */
const RECORD_BYTES = 8192;
/** Sandboxes whose victims are remembered; beyond it those that were killed in first are forgotten. */
const MAX_SANDBOXES = 4096;
/** Facility 0 is the kernel: what others write into its log is no evidence. */
const FACILITY_SHIFT = 3;

/** A record of the log: microseconds since boot, and the text. */
export interface LogRecord {
  readonly atUs: number;
  readonly text: string;
}

/** The kernel's log, read on from where it was left. */
export interface KernelLog extends Disposable {
  /** What has come since the last call. */
  read(): readonly LogRecord[];
}

/** When this host's kernel began to count, in milliseconds since 1970. */
function hostBootMs(): number {
  return Date.now() - Number(process.hrtime.bigint() / 1_000_000n);
}

/** The log of this host from its oldest record on; an empty one where it cannot be read. */
export function openKernelLog(): KernelLog {
  const fd = openLog();
  const buffer = Buffer.alloc(RECORD_BYTES);
  return {
    read: () => (fd === undefined ? [] : readRecords(fd, buffer)),
    [Symbol.dispose]: () => {
      if (fd !== undefined) closeSync(fd);
    },
  };
}

/**
 * Which processes of a node's sandboxes were killed for want of memory, from the kernel's log. Nothing is read until somebody
 * asks; the log itself keeps what happened meanwhile, as long as it has room.
 */
export class OomLog implements Disposable {
  readonly #log: KernelLog;
  readonly #kills: OomRecords;

  constructor(node: string, log: KernelLog = openKernelLog()) {
    this.#log = log;
    // Node names have no characters that mean anything here.
    this.#kills = new OomRecords(`\\S*/dsec/${node}/([^/,\\s]+)`);
  }

  /** Oldest first. */
  victims(id: string): readonly OomVictim[] {
    const bootMs = hostBootMs();
    for (const record of this.#log.read()) this.#kills.take(record, bootMs);
    return this.#kills.victims(id);
  }

  forget(id: string): void {
    this.#kills.forget(id);
  }

  [Symbol.dispose](): void {
    this.#log[Symbol.dispose]();
  }
}

/** Makes of a kernel's records who was killed in which of the cgroups that matter. */
export class OomRecords {
  readonly #marker: RegExp;
  readonly #victims = new Map<string, OomVictim[]>();
  /** A kill is told in two records: who, then how large. */
  #told: { readonly id: string; readonly pid: string; readonly victim: OomVictim } | undefined;

  /** `cgroup`: a pattern of their paths, with one group that names the sandbox. */
  constructor(cgroup: string) {
    this.#marker = new RegExp(`^oom-kill:constraint=(\\w+),.*?task_memcg=${cgroup},task=(.*),pid=(\\d+),uid=\\d+$`);
  }

  /** Oldest first. */
  victims(id: string): readonly OomVictim[] {
    return this.#victims.get(id) ?? [];
  }

  forget(id: string): void {
    this.#victims.delete(id);
  }

  /** The next record of a kernel that began to count at `bootMs`. */
  take({ atUs, text }: LogRecord, bootMs: number): void {
    const told = this.#told;
    const killed =
      /^(?:Memory cgroup out of memory|Out of memory[^:]*): Killed process (\d+) \(.*anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB/.exec(
        text,
      );
    if (killed !== null && told !== undefined && killed[1] === told.pid) {
      const residentBytes = killed.slice(2, 5).reduce((sum, kib) => sum + Number(kib) * 1024, 0);
      this.#replaceLast(told.id, { ...told.victim, residentBytes });
      return;
    }
    const [, constraint, id, program, pid] = this.#marker.exec(text) ?? [];
    if (id === undefined || program === undefined || pid === undefined) return;
    const full = constraint === "CONSTRAINT_MEMCG" ? "sandbox" : "node";
    const victim: OomVictim = { program, atMs: Math.round(bootMs + atUs / 1000), residentBytes: 0, full };
    this.#told = { id, pid, victim };
    this.#add(id, victim);
  }

  #add(id: string, victim: OomVictim): void {
    const before = this.#victims.get(id) ?? [];
    this.#victims.set(id, [...before, victim].slice(-MAX_OOM_VICTIMS));
    const [oldest] = this.#victims.keys();
    if (this.#victims.size > MAX_SANDBOXES && oldest !== undefined) this.#victims.delete(oldest);
  }

  #replaceLast(id: string, victim: OomVictim): void {
    const victims = this.#victims.get(id) ?? [];
    this.#victims.set(id, [...victims.slice(0, -1), victim]);
  }
}

function openLog(): number | undefined {
  try {
    return openSync("/dev/kmsg", constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (hasCode(error, "ENOENT", "EPERM", "EACCES", "ENXIO")) return undefined;
    throw error;
  }
}

/** Each read(2) gives one record. */
function readRecords(fd: number, buffer: Buffer): readonly LogRecord[] {
  const records: LogRecord[] = [];
  for (;;) {
    try {
      const length = readSync(fd, buffer);
      if (length === 0) return records;
      const record = parseRecord(buffer.toString("utf8", 0, length));
      if (record !== undefined) records.push(record);
    } catch (error) {
      if (hasCode(error, "EAGAIN", "EINVAL", "EPERM")) return records;
      // The log ran over what was not read yet; it goes on with the oldest that is left.
      if (!hasCode(error, "EPIPE")) throw error;
    }
  }
}

/** `priority,number,microseconds,flags;text`, then lines of details. `undefined` for what is not the kernel's. */
export function parseRecord(line: string): LogRecord | undefined {
  const match = /^(\d+),\d+,(\d+),[^;]*;([^\n]*)/.exec(line);
  if (match === null || Number(match[1]) >> FACILITY_SHIFT !== 0) return undefined;
  return { atUs: Number(match[2]), text: match[3] ?? "" };
}
