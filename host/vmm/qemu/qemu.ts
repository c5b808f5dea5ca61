import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import {
  MACHINE_PORTS,
  type Machine,
  type MachinePlace,
  type MachineProcess,
  type MachineSpec,
  type Vmm,
} from "../vmm.ts";
import { saveDevices } from "./devices.ts";
import { endProcess, findQemu, isAlive, nameOf, reachMonitor } from "./process.ts";
import { connectQmp, type Qmp } from "./qmp.ts";
import { MONITOR_SOCKET, spawnMachine } from "./spawn.ts";
import { CONSOLE_RING, shapeWords } from "./words.ts";

const CONSOLE_BYTES = 65_536;

/** The QEMU of this host. `FailedPrecondition` when there is none. */
export async function openQemu(): Promise<Vmm> {
  const program = findQemu();
  return new Qemu(program, await nameOf(program));
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

  saveDevices(): Promise<Buffer> {
    return saveDevices(this.#qmp, this.#dir);
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
