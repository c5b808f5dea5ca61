import { join } from "node:path";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { connectMachine, type MachineControl, type MachineUsage } from "#guest/protocol/machine.ts";
import { hostsFile } from "#host/cradle/names.ts";
import { lostMachine } from "#host/vmm/qemu/process.ts";
import {
  MACHINE_PORTS,
  type Machine,
  type MachinePlace,
  type MachineProcess,
  type MachineSpec,
  type Vmm,
} from "#host/vmm/vmm.ts";
import type { Holdable } from "./held.ts";
import { guestRequest } from "./request.ts";

/** Told of a guest that ended by itself: this much of what it said last. */
const LAST_WORDS = 600;
/** Of files in memory that are not worth looking at again. */
const LITTLE_BYTES = 8 * 1024 * 1024;

/** A machine that this process talks to: to its monitor, and to the first process of its guest. */
export class Guest implements Holdable {
  readonly machine: Machine;
  readonly #control: MachineControl;
  readonly #dir: string;
  /** The last who wants to hold the machine: who comes later waits. */
  #turn: Promise<void> = Promise.resolve();
  #open = true;

  constructor(
    id: SandboxId,
    parts: { readonly machine: Machine; readonly control: MachineControl; readonly dir: string },
    log: (line: string) => void,
  ) {
    this.machine = parts.machine;
    this.#control = parts.control;
    this.#dir = parts.dir;
    void parts.control.closed.then(() => {
      this.#open = false;
    });
    void parts.machine.ended.then((said) => this.#ended(id, said, log));
  }

  /** False: another one must be made of the same machine, if it lives. */
  get isOpen(): boolean {
    return this.#open;
  }

  /** The agent of the sandbox. */
  connect(signal: AbortSignal): Promise<GuestLink> {
    return this.#control.connectAgent(join(this.#dir, MACHINE_PORTS.agent), signal);
  }

  usage(): Promise<MachineUsage> {
    return this.#control.usage();
  }

  nextKill(after: number): ReturnType<MachineControl["nextKill"]> {
    return this.#control.nextKill(after);
  }

  /** Begins to give up what the sandbox can read again. False: that was little already. */
  async rest(): Promise<boolean> {
    return ((await this.#control.rest()) ?? Number.POSITIVE_INFINITY) > LITTLE_BYTES;
  }

  /** Resolves when nobody else holds the machine; until disposed, nobody else may. `SandboxLost` when it has ended meanwhile. */
  async turn(): Promise<Disposable> {
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    await before;
    if (this.#open) return { [Symbol.dispose]: resolve };
    resolve();
    throw new SandboxError("SandboxLost", "the machine of the sandbox has ended");
  }

  /** Holds the sandbox still, then its machine. */
  async hold(): Promise<void> {
    await this.#control.freeze();
    await this.machine.pause();
  }

  /** Lets a machine that is held go on, and the sandbox in it when it has the time and randomness of its own. */
  async release(): Promise<void> {
    await this.machine.run();
    await this.#control.renew();
    await this.#control.thaw();
  }

  /** The machine, to be held when what its sandbox has written so far is on the disk. */
  written(): Holdable {
    return {
      turn: () => this.turn(),
      hold: async () => {
        await this.#control.flush();
        await this.hold();
      },
      release: () => this.release(),
    };
  }

  /**
   * The sandbox without what it writes, while its machine runs: its disk is a whole file system. All of its processes stand still, if that is to be `consistent`;
   * else those alone that write. Tells when what was written before is on the disk: nobody is held for that.
   */
  quiet(options: { readonly consistent: boolean; readonly written: () => void }): Holdable {
    return {
      turn: () => this.turn(),
      hold: async () => {
        await this.#control.flush();
        options.written();
        try {
          if (options.consistent) await this.#control.freeze();
          await this.#control.lock();
        } catch (error) {
          await this.#control.thaw();
          throw error;
        }
      },
      release: () => this.#control.thaw(),
    };
  }

  /** Ends the machine. */
  async end(): Promise<void> {
    this.#open = false;
    this.#control.close();
    await this.machine.end();
  }

  /** Leaves the machine to the next process of the node. */
  leave(): void {
    this.#open = false;
    this.#control.close();
    this.machine.leave();
  }

  /** A guest that has ended stops its machine, which then waits to be looked at. */
  async #ended(id: SandboxId, said: string, log: (line: string) => void): Promise<void> {
    if (!this.#open) return;
    if (said !== "") log(`the guest of ${id} has ended: ${JSON.stringify(said.slice(-LAST_WORDS))}`);
    try {
      await this.end();
    } catch (error) {
      // Nobody waits for this: whoever removes the sandbox tries again.
      log(`the machine of ${id} does not end: ${asSandboxError(error).message}`);
    }
  }
}

/** What a sandbox is inside its machine: layers by the serial numbers of their disks, lowest first. */
export interface Inside {
  readonly spec: SandboxSpec;
  readonly layers: readonly (readonly string[])[];
  readonly upper: string;
}

/** Starts a machine, and the sandbox in it; resolves when its agent listens. What it rejects for leaves no process. */
export async function startGuest(
  inside: Inside,
  parts: {
    readonly vmm: Vmm;
    readonly machine: MachineSpec;
    readonly place: MachinePlace;
    readonly log: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<Guest> {
  const { place, log } = parts;
  const machine = await parts.vmm.start(parts.machine, place, signal);
  try {
    await machine.run();
    const control = await connectMachine(join(place.dir, MACHINE_PORTS.control), signal);
    await answered(control, signal, () => furnish(control, inside));
    return new Guest(inside.spec.id, { machine, control, dir: place.dir }, log);
  } catch (error) {
    const said = await machine.console().catch(() => "");
    await machine.end();
    signal.throwIfAborted();
    throw new SandboxError("Internal", "a machine did not become a sandbox", {
      cause: error,
      hint: "see the node's log",
      ...(said === "" ? {} : { details: { console: said.slice(-LAST_WORDS) } }),
    });
  }
}

/** Before anything of the user runs, the guest is made one of its own. */
async function furnish(control: MachineControl, { spec, layers, upper }: Inside): Promise<void> {
  await control.renew();
  for (const [number, serials] of layers.entries()) {
    await control.mountLayer(number, serials);
  }
  await control.mountUpper(upper);
  await control.launch(guestRequest(spec));
}

/** Lets a machine go on that was held, whoever started it; resolves when its sandbox goes on too, under another name if one is given. */
export async function continueGuest(
  id: SandboxId,
  machine: Machine,
  parts: { readonly dir: string; readonly hostname?: string | undefined; readonly log: (line: string) => void },
  signal: AbortSignal,
): Promise<Guest> {
  const { dir, hostname, log } = parts;
  await machine.run();
  const control = await connectMachine(join(dir, MACHINE_PORTS.control), signal);
  const guest = new Guest(id, { machine, control, dir }, log);
  await answered(control, signal, async () => {
    await control.renew();
    if (hostname !== undefined) await control.name(hostname, hostsFile(hostname));
    await control.thaw();
  });
  return guest;
}

/** Gives a machine that does not answer up when the signal says so. */
async function answered(control: MachineControl, signal: AbortSignal, talk: () => Promise<void>): Promise<void> {
  const abort = () => control.close();
  signal.throwIfAborted();
  signal.addEventListener("abort", abort, { once: true });
  try {
    await talk();
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/**
 * A machine that another process of the node started. It and its sandbox go on, if that process has ended while it held them. `SandboxLost` when it does not
 * run.
 */
export async function adoptGuest(
  id: SandboxId,
  parts: {
    readonly vmm: Vmm;
    readonly dir: string;
    readonly process: MachineProcess;
    readonly log: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<Guest> {
  const machine = await parts.vmm.adopt(parts, parts.process);
  if (machine === undefined) throw lostMachine(id);
  return await continueGuest(id, machine, parts, signal);
}
