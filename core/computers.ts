import type { SandboxId } from "#core/ids.ts";
import type { Pixels } from "#core/pixels.ts";
import type { PortPiece } from "#core/ports.ts";

/** What can be done to the power of a computer. `press` is the button: its system is asked to shut down. */
export const POWER_ACTIONS = ["press", "off", "on", "reset"] as const;
export type PowerAction = (typeof POWER_ACTIONS)[number];

/** Buttons of its mouse. */
export const MOUSE_BUTTONS = ["left", "middle", "right"] as const;
export type MouseButton = (typeof MOUSE_BUTTONS)[number];

/** A place on the screen, in pixels from its upper left corner. */
export interface ScreenPoint {
  readonly x: number;
  readonly y: number;
}

/** Something that a person does at a computer. */
export type InputAction =
  /** Types it on a US keyboard. */
  | { readonly type: "text"; readonly text: string }
  /** Presses keys together, in this order, and lets go of them in the opposite one: `["ctrl", "alt", "delete"]`. */
  | { readonly type: "keys"; readonly keys: readonly string[] }
  | { readonly type: "move"; readonly to: ScreenPoint }
  | { readonly type: "click"; readonly at: ScreenPoint; readonly button: MouseButton; readonly count: number }
  /** Presses the button at the first place, and lets go of it at the second. */
  | { readonly type: "drag"; readonly from: ScreenPoint; readonly to: ScreenPoint; readonly button: MouseButton }
  /** Turns the wheel by so many notches: down, or up when negative. */
  | { readonly type: "scroll"; readonly at: ScreenPoint; readonly notches: number };

/** Most of each, so that one call ends within a minute or so. */
export const INPUT_LIMITS = { actions: 256, textLength: 1024, keys: 8, clicks: 3, notches: 100 } as const;

/** How a computer is. */
export interface ComputerStatus {
  /** `off`: its system has shut down, or its power was cut. */
  readonly power: "on" | "off";
  /** What runs its processors. */
  readonly accelerator: "kvm" | "tcg";
  readonly screen: { readonly width: number; readonly height: number };
}

/** When to take a picture. */
export interface ScreenshotOptions {
  /** Once the screen has been the same for so long; undefined: at once. */
  readonly settledMs: number | undefined;
  /** As it is then, though it does not settle. */
  readonly waitMs: number;
  /** Share of its points, from 0 to 1, that may be others than they were when it began to be the same: a cursor blinks, and a clock goes on. */
  readonly tolerance: number;
}

/** A picture of a screen. */
export interface Screenshot {
  /** A PNG. */
  readonly png: Uint8Array;
  /** False: it was still changing. */
  readonly settled: boolean;
}

/** Connections to a computer: `display` speaks RFB (VNC), `console` is its first serial port. */
export const COMPUTER_CHANNELS = ["display", "console"] as const;
export type ComputerChannel = (typeof COMPUTER_CHANNELS)[number];

/** What a node does with full virtual machines. Calls for sandboxes of other backends reject with `FailedPrecondition`. */
export interface NodeComputers {
  computerStatus(id: SandboxId, signal: AbortSignal): Promise<ComputerStatus>;
  /** Success, and no effect, when it is so already. Resolves when it is done; after `press` the system takes its time. */
  powerComputer(id: SandboxId, action: PowerAction, signal: AbortSignal): Promise<void>;
  takeScreenshot(id: SandboxId, options: ScreenshotOptions, signal: AbortSignal): Promise<Screenshot>;
  /**
   * Does one after the other. `InvalidArgument` for characters and keys that a US keyboard does not have, and for places outside of the screen, before
   * anything is done.
   */
  sendInput(id: SandboxId, actions: readonly InputAction[], signal: AbortSignal): Promise<void>;
  /** Bytes both ways, as `openPort`. A console begins with what it said last, at most 64 KiB. */
  openChannel(
    id: SandboxId,
    channel: ComputerChannel,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncIterable<PortPiece>;
}

/**
 * What a backend may be able to do with the screen, the keyboard and the power of its sandboxes: `NodeComputers` for one node, without checks
 * of the state. Calls for one sandbox may overlap.
 */
export interface Computers {
  status(id: SandboxId): Promise<ComputerStatus>;
  power(id: SandboxId, action: PowerAction): Promise<void>;
  /** A PNG of the screen as it is. */
  screenshot(id: SandboxId): Promise<Uint8Array>;
  /** The same in plain points, which is quicker: what is looked at again and again. */
  look(id: SandboxId): Promise<Pixels>;
  input(id: SandboxId, actions: readonly InputAction[], signal: AbortSignal): Promise<void>;
  /** Rejects with `SandboxLost` when nobody answers. */
  channel(id: SandboxId, channel: ComputerChannel): Promise<ComputerStream>;
}

/** Bytes both ways. */
export interface ComputerStream extends Disposable {
  readonly bytes: AsyncIterable<Uint8Array>;
  /** Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>;
}
