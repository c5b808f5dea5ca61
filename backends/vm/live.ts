import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
import { abortable } from "#core/concurrency/abort.ts";
import { hasCode } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { Pixels } from "#core/pixels.ts";
import { COMPUTER_SOCKETS, type Computer } from "#host/vmm/computer.ts";
import { type Accelerator, MACHINE_PORTS, type MachineProcess } from "#host/vmm/vmm.ts";
import { ComputerAgent, PATIENCE_MS } from "./agent.ts";
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

/** A file that is there while a computer is held that was on before: whoever reaches one that nobody holds any more lets it go on. */
export function heldMark(dir: string): string {
  return join(dir, "held");
}

/** A computer that stands still: its memory, its devices and its disks are of one moment. */
export interface HeldComputer {
  /** It was off before, and stays so. */
  readonly isOff: boolean;
  /** Lets it go on, unless it has ended. Safe twice. */
  letGo(): Promise<void>;
}

/** A computer that this process talks to. */
export class LiveComputer {
  readonly computer: Computer;
  readonly #dir: string;
  readonly #console: Console;
  readonly #accelerator: Accelerator;
  /** Input of two calls does not mix. */
  #typing: Promise<unknown> = Promise.resolve();
  /** The last who wants it as it is: who comes later waits. */
  #turn: Promise<void> = Promise.resolve();
  #isHeld = false;
  #link: GuestLink | undefined;
  #patientUntilMs = 0;
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
    const isFirstTry = this.#link === undefined || (this.#link instanceof ComputerAgent && this.#link.wasReached);
    if (isFirstTry) this.#patientUntilMs = performance.now() + PATIENCE_MS;
    this.#link = existsSync(join(this.#dir, MACHINE_PORTS.agent))
      ? new ComputerAgent(name, this.computer, { dir: this.#dir, patientUntilMs: this.#patientUntilMs })
      : new NoAgent(name, this.computer.ended);
    return this.#link;
  }

  /** Lets a system whose agent is reached write out what it holds back. */
  async sync(): Promise<void> {
    if (this.#link instanceof ComputerAgent) await this.#link.sync();
  }

  async status(): Promise<ComputerStatus> {
    const [isOn, screen] = await Promise.all([this.computer.isOn(), this.#screen()]);
    return { power: isOn || this.#isHeld ? "on" : "off", accelerator: this.#accelerator, screen };
  }

  /**
   * Holds it still, after those who hold it already; power and input wait until it is let go. Rejects with `SandboxLost` when it is gone. A monitor that does not answer is not
   * waited for longer than the signal says: should it do what it was told, its computer goes on.
   */
  async hold(signal: AbortSignal): Promise<HeldComputer> {
    const holding = this.#hold(signal);
    try {
      return await abortable(holding, signal);
    } catch (error) {
      void holding.then((held) => held.letGo()).catch(() => undefined);
      throw error;
    }
  }

  /** Gives a system whose agent is reached the time of now: it has stood still. */
  async renew(): Promise<void> {
    if (this.#link instanceof ComputerAgent) await this.#link.renew();
  }

  async power(action: PowerAction): Promise<void> {
    const { computer } = this;
    const actions: Readonly<Record<PowerAction, () => Promise<void>>> = {
      press: () => computer.pressPower(),
      off: () => computer.switchOff(),
      on: () => computer.switchOn(),
      reset: () => computer.reset(),
    };
    await this.#whileFree(actions[action]);
  }

  screenshot(): Promise<Uint8Array> {
    return this.computer.screenshot();
  }

  look(): Promise<Pixels> {
    return this.computer.look();
  }

  input(actions: readonly InputAction[], signal: AbortSignal): Promise<void> {
    // One that stands still hears nothing.
    const input: Computer["input"] = (events) => this.#whileFree(() => this.computer.input(events));
    const typed = this.#typing.then(() => sendInput({ input }, actions, () => this.#screen(), signal));
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

  async #hold(signal: AbortSignal): Promise<HeldComputer> {
    const leave = await this.#take();
    const mark = heldMark(this.#dir);
    let isOff = true;
    let isOver = false;
    const letGo = async () => {
      if (isOver) return;
      isOver = true;
      try {
        if (!isOff && this.#open) await this.computer.goOn();
        rmSync(mark, { force: true });
      } finally {
        this.#isHeld = false;
        leave();
      }
    };
    try {
      signal.throwIfAborted();
      isOff = !(await this.computer.isOn());
      this.#isHeld = !isOff;
      if (!isOff) writeFileSync(mark, "");
      await this.computer.switchOff();
      return { isOff, letGo };
    } catch (error) {
      await letGo();
      throw error;
    }
  }

  /** Resolves when nobody else holds it, with what lets the next one. */
  async #take(): Promise<() => void> {
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    await before;
    return resolve;
  }

  async #whileFree(action: () => Promise<void>): Promise<void> {
    const leave = await this.#take();
    try {
      await action();
    } finally {
      leave();
    }
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
