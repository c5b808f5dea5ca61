import { execFile } from "node:child_process";
import { once } from "node:events";
import { closeSync, fstatSync, openSync, readSync, rmSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { SandboxError } from "#core/errors.ts";
import { dataExtents } from "#host/sys/holes.ts";
import {
  MACHINE_PORTS,
  type Machine,
  type MachinePlace,
  type MachineProcess,
  type MachineSpec,
  type Vmm,
} from "../vmm.ts";
import { endProcess, findQemu, isAlive, reachMonitor } from "./process.ts";
import { connectQmp, type Qmp } from "./qmp.ts";
import { DEVICES_OUT, MONITOR_SOCKET, spawnMachine } from "./spawn.ts";
import { CONSOLE_RING, DEVICES_SET, shapeWords } from "./words.ts";

const CONSOLE_BYTES = 65_536;

/** The QEMU of this host. `FailedPrecondition` when there is none. */
export async function openQemu(): Promise<Vmm> {
  const program = findQemu();
  const { stdout } = await promisify(execFile)(program, ["--version"]);
  const version = /version (\S+)/.exec(stdout)?.[1] ?? "of unknown version";
  return new Qemu(program, `qemu ${version}`);
}

class Qemu implements Vmm {
  readonly name: string;
  readonly #program: string;

  constructor(program: string, name: string) {
    this.#program = program;
    this.name = name;
  }

  identity(spec: MachineSpec): string {
    return `${this.name} ${shapeWords(spec).join(" ")}`;
  }

  async start(spec: MachineSpec, place: MachinePlace, signal: AbortSignal): Promise<Machine> {
    signal.throwIfAborted();
    for (const name of [MONITOR_SOCKET, ...Object.values(MACHINE_PORTS)])
      rmSync(join(place.dir, name), { force: true });
    using spawned = spawnMachine(this.#program, spec, place);
    try {
      return new QemuMachine(await reachMonitor(place.dir, spawned, signal), place.dir, spawned.process);
    } catch (error) {
      await endProcess(spawned.process);
      throw error;
    }
  }

  async adopt({ dir }: Pick<MachinePlace, "dir">, process: MachineProcess): Promise<Machine | undefined> {
    if (!isAlive(process)) return undefined;
    const qmp = await connectQmp(join(dir, MONITOR_SOCKET)).catch(() => undefined);
    return qmp === undefined ? undefined : new QemuMachine(qmp, dir, process);
  }
}

class QemuMachine implements Machine {
  readonly process: MachineProcess;
  readonly ended: Promise<string>;
  readonly #qmp: Qmp;
  readonly #dir: string;

  constructor(qmp: Qmp, dir: string, process: MachineProcess) {
    this.process = process;
    this.#qmp = qmp;
    this.#dir = dir;
    const stopped = once(qmp.events, "SHUTDOWN").then(() => this.console().catch(() => ""));
    this.ended = Promise.race([stopped, qmp.closed.then(() => "")]);
  }

  async run(): Promise<void> {
    await this.#qmp.order("cont");
  }

  async pause(): Promise<void> {
    await this.#qmp.order("stop");
  }

  async saveDevices(): Promise<Buffer> {
    const out = join(this.#dir, DEVICES_OUT);
    truncateSync(out, 0);
    await this.#qmp.order("xen-save-devices-state", { filename: `/dev/fdset/${DEVICES_SET}`, live: false });
    const state = readBehindHole(out);
    truncateSync(out, 0);
    return state;
  }

  async console(): Promise<string> {
    const text = await this.#qmp.order("ringbuf-read", { device: CONSOLE_RING, size: CONSOLE_BYTES });
    return typeof text === "string" ? text : "";
  }

  leave(): void {
    this.#qmp.close();
  }

  async end(): Promise<void> {
    await endProcess(this.process);
    this.#qmp.close();
  }
}

/** QEMU writes on where it was before, and what it wrote then is cut off: a hole. What it writes begins with a byte that is not zero. */
function readBehindHole(path: string): Buffer {
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    const [first] = dataExtents(fd, size);
    const from = first?.offset ?? size;
    const bytes = Buffer.alloc(size - from);
    for (let done = 0; done < bytes.length; ) {
      const read = readSync(fd, bytes, done, bytes.length - done, from + done);
      if (read === 0) throw new SandboxError("Internal", "the state of devices was cut short");
      done += read;
    }
    return bytes.subarray(bytes.findIndex((byte) => byte !== 0));
  } finally {
    closeSync(fd);
  }
}
