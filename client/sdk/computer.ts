import type { ComputerView, InputRequest, PowerRequest } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { channelOver } from "./channel.ts";
import type { Connection } from "./connection.ts";
import { type FilmOptions, filmFrames } from "./frames.ts";
import type { Screenshot } from "./screenshot.ts";

/** When to take a picture of a screen. */
export interface ScreenshotOptions extends CallOptions {
  /** Once it has been the same for so long; at once unless given. */
  readonly settledMs?: number;
  /** Share of its points, from 0 to 1, that may change all the same, as of a cursor that blinks; 0.002 unless given. */
  readonly tolerance?: number;
  /** As it is then, if it does not settle. */
  readonly waitMs?: number;
}

/** A place on the screen, in points from its upper left corner. */
export interface ScreenPoint {
  readonly x: number;
  readonly y: number;
}

/** How to click. */
export interface ClickOptions extends CallOptions {
  readonly button?: "left" | "middle" | "right";
  /** 2: a double click. */
  readonly count?: number;
}

/** Subprotocol of bytes in WebSockets, as noVNC has it. */
const BYTES_PROTOCOL = "binary";

/** The screen, keyboard, mouse, console and power of a full virtual machine. Other sandboxes have none: `FailedPrecondition`. */
export class Computer {
  readonly #caller: Caller;
  readonly #path: string;

  /** Made by `Sandbox`. */
  constructor(caller: Caller, sandboxPath: string) {
    this.#caller = caller;
    this.#path = sandboxPath;
  }

  /** Its power and the size of its screen. */
  info(options: CallOptions = {}): Promise<ComputerView> {
    return this.#caller.json({ ...options, method: "GET", path: `${this.#path}/computer` });
  }

  /** Its screen, now or once it has settled. */
  async screenshot(options: ScreenshotOptions = {}): Promise<Screenshot> {
    const { settledMs, waitMs, tolerance, signal, timeoutMs } = options;
    const query = { settledMs, waitMs, tolerance };
    const reply = await this.#caller.open({ method: "GET", path: `${this.#path}/screen`, query, signal, timeoutMs });
    const parts: Uint8Array[] = [];
    for await (const bytes of reply.body) parts.push(bytes);
    return { png: await joined(parts), settled: reply.header("x-dsec-settled") === "true" };
  }

  /** Its screen again and again, a PNG for each moment of a film. Breaking off the loop ends it. */
  film(options: FilmOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return filmFrames((signal) => this.screenshot({ signal }), options);
  }

  /** Does all of it, one after the other; none of it when a key or place of it does not exist. */
  async input(actions: InputRequest["actions"], options: CallOptions = {}): Promise<void> {
    const json: InputRequest = { actions: [...actions] };
    await this.#caller.json({ ...options, method: "POST", path: `${this.#path}/input`, json });
  }

  /** Types a text on a US keyboard; a line feed is the enter key. */
  type(text: string, options: CallOptions = {}): Promise<void> {
    return this.input([{ type: "text", text }], options);
  }

  /** Presses keys together: `press(["ctrl", "alt", "delete"])`. */
  press(keys: readonly string[], options: CallOptions = {}): Promise<void> {
    return this.input([{ type: "keys", keys: [...keys] }], options);
  }

  click(at: ScreenPoint, { button, count, ...options }: ClickOptions = {}): Promise<void> {
    const action = { type: "click", at, ...(button && { button }), ...(count && { count }) } as const;
    return this.input([action], options);
  }

  move(to: ScreenPoint, options: CallOptions = {}): Promise<void> {
    return this.input([{ type: "move", to }], options);
  }

  /** Presses the left button at the first place and lets go of it at the second. */
  drag(from: ScreenPoint, to: ScreenPoint, options: CallOptions = {}): Promise<void> {
    return this.input([{ type: "drag", from, to }], options);
  }

  /** Turns the wheel by so many notches: down, or up when negative. */
  scroll(at: ScreenPoint, notches: number, options: CallOptions = {}): Promise<void> {
    return this.input([{ type: "scroll", at, notches }], options);
  }

  /** `press` asks its system to shut down, which takes its time; the others are done when this resolves. */
  async power(action: PowerRequest["action"], options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "POST", path: `${this.#path}/power`, json: { action } });
  }

  /** Its display, for a client that speaks RFB, as VNC viewers do. */
  display(): Promise<Connection> {
    return this.#channel("display");
  }

  /** Its first serial port, from what it said last on. */
  console(): Promise<Connection> {
    return this.#channel("console");
  }

  #channel(name: "display" | "console"): Promise<Connection> {
    const socket = this.#caller.socket(`${this.#path}/${name}`, {}, BYTES_PROTOCOL);
    return channelOver(socket, () => this.info());
  }
}

async function joined(parts: readonly Uint8Array[]): Promise<Uint8Array> {
  return new Uint8Array(await new Blob(parts.map((part) => new Uint8Array(part))).arrayBuffer());
}
