import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { Pixels } from "#core/pixels.ts";
import {
  COMPUTER_SOCKETS,
  type Computer,
  type ComputerMaker,
  type ComputerSpec,
  type InputEvent,
} from "../computer.ts";
import { MACHINE_PORTS, type MachinePlace, type MachineProcess } from "../vmm.ts";
import { AGENT_PORT } from "./computer-words.ts";
import { readPixels, readPng } from "./pictures.ts";
import { endProcess, findQemu, isAlive, reachMonitor } from "./process.ts";
import { connectQmp, type Qmp } from "./qmp.ts";
import { EMPTY_DIR, MONITOR_SOCKET, SCREEN_FILE, spawnComputer } from "./spawn.ts";

/** Absolute places of a pointer go from 0 to this. */
const LARGEST_PLACE = 0x7fff;

/** Computers by the QEMU of this host. `FailedPrecondition` when there is none. */
export function openComputers(): ComputerMaker {
  const program = findQemu();
  return {
    async start(spec: ComputerSpec, place: MachinePlace, signal: AbortSignal) {
      signal.throwIfAborted();
      const sockets = [MONITOR_SOCKET, ...Object.values(COMPUTER_SOCKETS), ...Object.values(MACHINE_PORTS)];
      for (const name of sockets) rmSync(join(place.dir, name), { force: true });
      using spawned = spawnComputer(program, spec, place);
      try {
        return new QemuComputer(await reachMonitor(place.dir, spawned, signal), place.dir, spawned.process);
      } catch (error) {
        await endProcess(spawned.process);
        throw error;
      }
    },
    async adopt({ dir }, process) {
      if (!isAlive(process)) return undefined;
      const qmp = await connectQmp(join(dir, MONITOR_SOCKET)).catch(() => undefined);
      return qmp === undefined ? undefined : new QemuComputer(qmp, dir, process);
    },
  };
}

class QemuComputer implements Computer {
  readonly process: MachineProcess;
  readonly ended: Promise<void>;
  readonly #qmp: Qmp;
  readonly #dir: string;
  /** Pictures go into one file: one at a time. */
  #picture: Promise<unknown> = Promise.resolve();

  constructor(qmp: Qmp, dir: string, process: MachineProcess) {
    this.#qmp = qmp;
    this.#dir = dir;
    this.process = process;
    this.ended = qmp.closed;
  }

  async isOn(): Promise<boolean> {
    const status = await this.#qmp.order("query-status");
    return typeof status === "object" && status !== null && "running" in status && status.running === true;
  }

  async switchOn(): Promise<void> {
    if (!(await this.isOn())) await this.reset();
  }

  async switchOff(): Promise<void> {
    await this.#qmp.order("stop");
  }

  async reset(): Promise<void> {
    // The order is only noted when it is answered; what has shut down does not go on before it was carried out.
    const done = once(this.#qmp.events, "RESET");
    const ended = this.ended.then(() => {
      throw new SandboxError("SandboxLost", "the computer has ended before its reset");
    });
    await this.#qmp.order("system_reset");
    await Promise.race([done, ended]);
    await this.#qmp.order("cont");
  }

  async pressPower(): Promise<void> {
    await this.#qmp.order("system_powerdown");
  }

  onAgentGone(gone: () => void): Disposable {
    const listener = (data: unknown) => {
      if (isClosedPort(data)) gone();
    };
    this.#qmp.events.on("VSERPORT_CHANGE", listener);
    return { [Symbol.dispose]: () => this.#qmp.events.off("VSERPORT_CHANGE", listener) };
  }

  screenshot(): Promise<Buffer> {
    return this.#take("png", readPng);
  }

  look(): Promise<Pixels> {
    return this.#take("ppm", readPixels);
  }

  async input(events: readonly InputEvent[]): Promise<void> {
    await this.#qmp.order("input-send-event", { events: events.flatMap(inputWords) });
  }

  leave(): void {
    this.#qmp.close();
  }

  async end(): Promise<void> {
    await endProcess(this.process);
    this.#qmp.close();
  }

  #take<T>(format: "png" | "ppm", read: (path: string) => T): Promise<T> {
    const taken = this.#picture.then(async () => {
      await this.#qmp.order("screendump", { filename: `/${SCREEN_FILE}`, format });
      return read(join(this.#dir, EMPTY_DIR, SCREEN_FILE));
    });
    this.#picture = taken.catch(() => undefined);
    return taken;
  }
}

function isClosedPort(data: unknown): boolean {
  if (typeof data !== "object" || data === null || !("id" in data) || !("open" in data)) return false;
  return data.id === AGENT_PORT && data.open === false;
}

function inputWords(event: InputEvent): readonly object[] {
  switch (event.type) {
    case "key":
      return [{ type: "key", data: { down: event.down, key: { type: "qcode", data: event.key } } }];
    case "button":
      return [{ type: "btn", data: { down: event.down, button: event.button } }];
    case "place":
      return (["x", "y"] as const).map((axis) => ({
        type: "abs",
        data: { axis, value: Math.round(event[axis] * LARGEST_PLACE) },
      }));
  }
}
