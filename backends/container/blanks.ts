import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { GuestLink } from "#core/guest.ts";
import { connectUnix } from "#guest/protocol/connect.ts";
import type { BlankRequest } from "#host/cradle/client.ts";
import { processStartTicks } from "#host/sys/process.ts";
import type { Volume } from "#host/volume/volume.ts";
import type { AgentProcess } from "./handle.ts";

/** A sandbox before it has an environment: its agent answers already. */
export interface Blank {
  /** Id of its upper, until that gets the sandbox's. */
  readonly upper: string;
  readonly agent: AgentProcess;
  readonly link: GuestLink;
}

/** What blanks are made with. */
export interface BlanksOptions {
  /** Holds the sockets of blanks; nobody else's. */
  readonly dir: string;
  /** The part of a slot's request that is known before anybody asks, but for the socket. */
  readonly request: (slot: number) => Omit<BlankRequest, "socketPath">;
  readonly launcher: {
    blank(request: BlankRequest, signal: AbortSignal): Promise<{ readonly pid: number }>;
    drop(uidBase: number): void;
  };
  /** Holds their uppers, among those of sandboxes. */
  readonly volume: Pick<Volume, "createUpper" | "removeUpper" | "list">;
  /** Blanks at once. */
  readonly most: number;
  /** Creates under way from which on no blank is begun: the machine has enough to do. */
  readonly busyAt: number;
  readonly log: (line: string) => void;
}

/** A blank that takes longer is given up. */
const MAKE_LIMIT_MS = 15_000;
/** One that was ended is a stray if it lives on for longer: the launcher kills it without an answer. */
const ENDING_MS = 5_000;
/** Begins the ids of their uppers: no sandbox's does. */
const UPPER = "blank-";
/** Blanks whose slots are given away already and that were not taken yet. */
const SPARE = 4;

//   wanted ─► making ─► ready ─► taken: it is the sandbox of a create from then on
//                 │        │
//                 └────────┴──► gone: not wanted any more, failed or dead

/**
 * Blanks of one node, each for the one slot whose user ids it has. They are made one after the other while few creates are under
 * way, are used once, and end with the launcher: a node that is killed leaves none.
 */
export class Blanks implements AsyncDisposable {
  readonly #options: BlanksOptions;
  readonly #ready = new Map<number, Blank>();
  readonly #closing = new AbortController();
  #wanted: readonly number[] = [];
  #making: { readonly slot: number; readonly done: Promise<void> } | undefined;
  readonly #creating = new Set<number>();
  readonly #ending = new Set<number>();

  private constructor(options: BlanksOptions) {
    this.#options = options;
  }

  /** Removes what an earlier node left of its own. */
  static async open(options: BlanksOptions): Promise<Blanks> {
    rmSync(options.dir, { recursive: true, force: true });
    mkdirSync(options.dir, { recursive: true, mode: 0o700 });
    for (const upper of options.volume.list()) if (upper.startsWith(UPPER)) await options.volume.removeUpper(upper);
    return new Blanks(options);
  }

  /** First user ids of the blanks that are there, in the making, being used up, or ended just now. */
  get uidBases(): ReadonlySet<number> {
    return new Set(this.#slots.map((slot) => this.#options.request(slot).uidBase));
  }

  /** Ids of their uppers. */
  get uppers(): ReadonlySet<string> {
    return new Set(this.#slots.map(upperOf));
  }

  /** Says which slots are used next, in this order. A blank of another gives way when there are too many. */
  expect(slots: readonly number[]): void {
    this.#wanted = slots;
    setImmediate(() => this.#refill());
  }

  /** Marks a create at this slot as under way until disposed. */
  creating(slot: number): Disposable {
    this.#creating.add(slot);
    return {
      [Symbol.dispose]: () => {
        this.#creating.delete(slot);
        // After the answer of that create.
        setImmediate(() => this.#refill());
      },
    };
  }

  /** The blank of a slot, for the one create that uses it up. Waits for one in the making; undefined: there is none. */
  async take(slot: number): Promise<Blank | undefined> {
    this.#wanted = this.#wanted.filter((other) => other !== slot);
    if (this.#making?.slot === slot) await this.#making.done;
    const blank = this.#ready.get(slot);
    this.#ready.delete(slot);
    return blank;
  }

  /** Ends the blank of a slot, whether it waits or was taken and not used. Safe when there is none. */
  async end(slot: number): Promise<void> {
    const { launcher, request, volume } = this.#options;
    this.#ready.get(slot)?.link.close();
    this.#ready.delete(slot);
    launcher.drop(request(slot).uidBase);
    this.#ending.add(slot);
    setTimeout(() => this.#ending.delete(slot), ENDING_MS).unref();
    rmSync(this.#socketPath(slot), { force: true });
    await volume.removeUpper(upperOf(slot));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    this.#wanted = [];
    await this.#making?.done;
    for (const slot of [...this.#ready.keys()]) await this.end(slot);
  }

  get #slots(): readonly number[] {
    const making = this.#making === undefined ? [] : [this.#making.slot];
    return [...this.#ready.keys(), ...this.#creating, ...making, ...this.#ending];
  }

  #refill(): void {
    if (this.#making !== undefined || this.#creating.size >= this.#options.busyAt || this.#closing.signal.aborted)
      return;
    const slot = this.#wanted.find((wanted) => !this.#ready.has(wanted));
    if (slot === undefined) return;
    if (this.#ready.size >= this.#options.most + SPARE) this.#endUnwanted();
    this.#making = { slot, done: this.#fill(slot) };
  }

  /** One whose slot went to a create that failed before it needed it, or needs it in a moment. */
  #endUnwanted(): void {
    const unwanted = [...this.#ready.keys()].find((slot) => !this.#wanted.includes(slot));
    if (unwanted !== undefined) this.#endSoon(unwanted);
  }

  async #fill(slot: number): Promise<void> {
    try {
      const blank = await this.#make(slot);
      this.#ready.set(slot, blank);
      void blank.link.closed.then(() => {
        if (this.#ready.get(slot) === blank) this.#endSoon(slot);
      });
    } catch (error) {
      // Creates go without; if they fail too, they say why.
      this.#wanted = [];
      if (!this.#closing.signal.aborted) this.#options.log(`a blank could not be made: ${String(error)}`);
    }
    this.#making = undefined;
    this.#refill();
  }

  async #make(slot: number): Promise<Blank> {
    const { launcher, request, volume } = this.#options;
    const socketPath = this.#socketPath(slot);
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(MAKE_LIMIT_MS)]);
    const known = request(slot);
    rmSync(socketPath, { force: true });
    await volume.removeUpper(upperOf(slot));
    try {
      volume.createUpper(upperOf(slot), undefined);
      const { pid } = await launcher.blank({ ...known, socketPath }, signal);
      const link = await connectUnix(socketPath, signal);
      const startTicks = processStartTicks(pid);
      if (startTicks !== undefined) return { upper: upperOf(slot), agent: { pid, startTicks }, link };
      link.close();
      throw new Error(`its agent ${pid} is dead`);
    } catch (error) {
      await this.end(slot);
      throw error;
    }
  }

  #endSoon(slot: number): void {
    this.end(slot).catch((error) => this.#options.log(`a blank could not be removed: ${String(error)}`));
  }

  #socketPath(slot: number): string {
    return join(this.#options.dir, `${slot}.sock`);
  }
}

function upperOf(slot: number): string {
  return `${UPPER}${slot}`;
}
