import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import type {
  ComputerChannel,
  ComputerStatus,
  ComputerStream,
  Computers,
  InputAction,
  PowerAction,
} from "#core/computers.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { Pixels } from "#core/pixels.ts";
import { COMPUTER_SOCKETS, type Computer } from "#host/vmm/computer.ts";
import { type Accelerator, MACHINE_PORTS, type MachineProcess } from "#host/vmm/vmm.ts";
import { ComputerAgent } from "./agent.ts";
import { Console, connectSocket, writeTo } from "./console.ts";
import { type ScreenSize, sendInput } from "./input.ts";
import { NoAgent } from "./no-agent.ts";

/** Where a PNG has its width; its height follows. */
const PNG_WIDTH_OFFSET = 16;

/** In the run directory of one that was paused: the name that it had before. */
const NAME_FILE = "name";

/** What tells a computer from every other, whatever monitors it has had: of the first of them, unless it was kept. */
function nameOf(dir: string, { pid, startTicks }: MachineProcess): string {
  const file = join(dir, NAME_FILE);
  return existsSync(file) ? readFileSync(file, "utf8") : `${pid}.${startTicks}`;
}

/** Keeps the name of one that goes on with another monitor. */
export function keepName(dir: string, process: MachineProcess): void {
  writeFileSync(join(dir, NAME_FILE), nameOf(dir, process));
}

/** A computer that this process talks to. */
export class LiveComputer {
  readonly computer: Computer;
  readonly #dir: string;
  readonly #console: Console;
  readonly #accelerator: Accelerator;
  /** Input of two calls does not mix. */
  #typing: Promise<unknown> = Promise.resolve();
  #link: GuestLink | undefined;
  #open = true;

  /** Reaches the sockets of a computer in its directory, which must not be reached by another process. */
  static async reach(computer: Computer, dir: string, accelerator: Accelerator): Promise<LiveComputer> {
    const console = new Console(await connectSocket(join(dir, COMPUTER_SOCKETS.console)));
    return new LiveComputer(computer, dir, { console, accelerator });
  }

  /** Use `reach`. */
  constructor(
    computer: Computer,
    dir: string,
    { console, accelerator }: { readonly console: Console; readonly accelerator: Accelerator },
  ) {
    this.computer = computer;
    this.#dir = dir;
    this.#console = console;
    this.#accelerator = accelerator;
    void computer.ended.then(() => this.#shut());
  }

  /** False: another one must be made of the same computer, if it lives. */
  get isOpen(): boolean {
    return this.#open;
  }

  link(): GuestLink {
    const name = nameOf(this.#dir, this.computer.process);
    // One at a time: the port inside takes one connection.
    this.#link?.close();
    this.#link = existsSync(join(this.#dir, MACHINE_PORTS.agent))
      ? new ComputerAgent(name, this.computer, this.#dir)
      : new NoAgent(name, this.computer.ended);
    return this.#link;
  }

  async status(): Promise<ComputerStatus> {
    const [isOn, screen] = await Promise.all([this.computer.isOn(), this.#screen()]);
    return { power: isOn ? "on" : "off", accelerator: this.#accelerator, screen };
  }

  async power(action: PowerAction): Promise<void> {
    const { computer } = this;
    const actions: Readonly<Record<PowerAction, () => Promise<void>>> = {
      press: () => computer.pressPower(),
      off: () => computer.switchOff(),
      on: () => computer.switchOn(),
      reset: () => computer.reset(),
    };
    await actions[action]();
  }

  screenshot(): Promise<Uint8Array> {
    return this.computer.screenshot();
  }

  look(): Promise<Pixels> {
    return this.computer.look();
  }

  input(actions: readonly InputAction[], signal: AbortSignal): Promise<void> {
    const typed = this.#typing.then(() => sendInput(this.computer, actions, () => this.#screen(), signal));
    this.#typing = typed.catch(() => undefined);
    return typed;
  }

  async channel(channel: ComputerChannel): Promise<ComputerStream> {
    if (channel === "console") return this.#console.view();
    const socket = await connectSocket(join(this.#dir, COMPUTER_SOCKETS.display));
    socket.on("error", () => undefined);
    return {
      bytes: bytesOf(socket),
      write: (bytes) => writeTo(socket, bytes),
      [Symbol.dispose]: () => socket.destroy(),
    };
  }

  /** Ends the computer. */
  async end(): Promise<void> {
    this.#shut();
    await this.computer.end();
  }

  /** Leaves the computer to the next process of the node. */
  leave(): void {
    this.#shut();
    this.computer.leave();
  }

  #shut(): void {
    this.#open = false;
    this.#link?.close();
    this.#console.close();
  }

  async #screen(): Promise<ScreenSize> {
    const png = await this.computer.screenshot();
    return { width: png.readUInt32BE(PNG_WIDTH_OFFSET), height: png.readUInt32BE(PNG_WIDTH_OFFSET + 4) };
  }
}

/** A display that is closed, from whichever side, has ended. */
async function* bytesOf(socket: Socket): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const bytes of socket.iterator({ destroyOnReturn: true })) yield bytes as Buffer;
  } catch (error) {
    if (!hasCode(error, "ERR_STREAM_PREMATURE_CLOSE", "ECONNRESET", "EPIPE")) throw error;
  }
}

/** `Computers` over whatever finds the live ones. */
export function computersOver(find: (id: Parameters<Computers["status"]>[0]) => Promise<LiveComputer>): Computers {
  return {
    status: async (id) => (await find(id)).status(),
    power: async (id, action) => (await find(id)).power(action),
    screenshot: async (id) => (await find(id)).screenshot(),
    look: async (id) => (await find(id)).look(),
    input: async (id, actions, signal) => (await find(id)).input(actions, signal),
    channel: async (id, channel) => (await find(id)).channel(channel),
  };
}

/** The error for one whose monitor has ended. */
export function lost(id: string, cause?: unknown): SandboxError {
  return new SandboxError("SandboxLost", `the computer of ${id} is gone`, cause === undefined ? {} : { cause });
}
