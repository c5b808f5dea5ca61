import { once } from "node:events";
import { rmSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SandboxError } from "#core/errors.ts";
import type { Pixels } from "#core/pixels.ts";
import {
  COMPUTER_SOCKETS,
  type Computer,
  type ComputerMaker,
  type ComputerSpec,
  type InputEvent,
  type OtherMemory,
} from "../computer.ts";
import type { ProcessMemory } from "../memory.ts";
import { MACHINE_PORTS, type MachinePlace, type MachineProcess } from "../vmm.ts";
import { AGENT_PORT, computerShape } from "./computer-words.ts";
import { saveDevices } from "./devices.ts";
import { readPixels, readPng } from "./pictures.ts";
import { endProcess, findQemu, isAlive, nameOf, reachMonitor } from "./process.ts";
import { connectQmp, type Qmp } from "./qmp.ts";
import { MONITOR_SOCKET, SCREEN_FILE, spawnComputer } from "./spawn.ts";

const TAKEN_PAUSE_MS = 2;
/** QEMU's BIOS ends with the first four gibibytes. */
const BIOS_BYTES = 256 * 1024;
const BIOS_ADDRESS = 2 ** 32 - BIOS_BYTES;
/** Of a VGA, in PCI. */
const SCREEN_CLASS = 0x0300;
/** QEMU's has 16 MiB; a guest may have taken QEMU over. */
const MOST_SCREEN_BYTES = 64 * 1024 * 1024;

/** What `query-pci` tells, as far as it is looked at. */
interface PciBus {
  readonly devices: readonly {
    readonly class_info: { readonly class: number };
    readonly regions: readonly {
      readonly bar: number;
      readonly type: string;
      readonly address: number;
      readonly size: number;
    }[];
  }[];
}

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
        const qmp = await reachMonitor(place.dir, spawned, signal);
        if (spec.saved !== undefined) await taken(qmp, signal);
        return new QemuComputer(qmp, place.dir, spawned.process);
      } catch (error) {
        await endProcess(spawned.process);
        throw error;
      }
    },
    identity: async (spec) => `${await nameOf(program)} ${computerShape(spec).join(" ")}`,
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
    return (await statusOf(this.#qmp)).running;
  }

  async switchOn(): Promise<void> {
    if (!(await this.isOn())) await this.reset();
  }

  async switchOff(): Promise<void> {
    await this.#qmp.order("stop");
  }

  async goOn(): Promise<void> {
    await this.#qmp.order("cont");
  }

  saveDevices(): Promise<Buffer> {
    return saveDevices(this.#qmp, this.#dir);
  }

  async otherMemory(): Promise<Readonly<Partial<Record<OtherMemory, ProcessMemory>>>> {
    const card = findScreen(await this.#qmp.order("query-pci"));
    const screen = card && (await this.#inProcess("vga.vram", card.address, card.size));
    const bios = await this.#inProcess("pc.bios", BIOS_ADDRESS, BIOS_BYTES);
    return { ...(screen && { screen }), ...(bios && { bios }) };
  }

  async memoryAddress(): Promise<number> {
    const memory = await this.#inProcess("memory", 0, 0);
    if (memory !== undefined) return memory.address;
    throw new SandboxError("Internal", "QEMU does not tell where a computer's memory is");
  }

  /** What of that name lies at an address of the computer; undefined where something else does, or nothing. */
  async #inProcess(name: string, address: number, sizeBytes: number): Promise<ProcessMemory | undefined> {
    const said = await this.#qmp.order("human-monitor-command", { "command-line": `gpa2hva ${address}` });
    const [, found, hex = ""] = /\(([^)]+)\) is 0x([0-9a-f]{1,13})\b/.exec(String(said)) ?? [];
    return found === name ? { address: Number.parseInt(hex, 16), sizeBytes } : undefined;
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
      await this.#qmp.order("screendump", { filename: `/${basename(SCREEN_FILE)}`, format });
      return read(join(this.#dir, SCREEN_FILE));
    });
    this.#picture = taken.catch(() => undefined);
    return taken;
  }
}

/** Resolves when QEMU has read the state that it goes on from. `SandboxLost` when it ends in place of that. */
async function taken(qmp: Qmp, signal: AbortSignal): Promise<void> {
  while ((await statusOf(qmp)).status === "inmigrate") await delay(TAKEN_PAUSE_MS, undefined, { signal });
}

async function statusOf(qmp: Qmp): Promise<{ readonly running: boolean; readonly status: string }> {
  const status = await qmp.order("query-status");
  if (typeof status !== "object" || status === null) return { running: false, status: "" };
  const running = "running" in status && status.running === true;
  return { running, status: "status" in status ? String(status.status) : "" };
}

/** Of what QEMU tells about its buses: the memory of the screen's card, the first of its regions, where its system has placed it. */
function findScreen(buses: unknown): { readonly address: number; readonly size: number } | undefined {
  const cards = (buses as readonly PciBus[]).flatMap(({ devices }) => devices);
  const card = cards.find(({ class_info }) => class_info.class === SCREEN_CLASS);
  const region = card?.regions.find(({ bar, type }) => bar === 0 && type === "memory");
  if (region === undefined || !Number.isSafeInteger(region.address) || region.address <= 0) return undefined;
  return region.size > 0 && region.size <= MOST_SCREEN_BYTES ? region : undefined;
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
