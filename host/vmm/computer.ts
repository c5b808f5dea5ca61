import type { Pixels } from "#core/pixels.ts";
import type { ComputerShape } from "#core/sandbox.ts";
import type { ProcessMemory } from "./memory.ts";
import type { Accelerator, MachinePlace, MachineProcess } from "./vmm.ts";

/** Runs computers on this host: machines with firmware, a screen and a keyboard, which start from whatever their disks hold. */
export interface ComputerMaker {
  /** Starts the monitor and resolves when it takes orders; the computer is off until `power`. Rejects as `Vmm.start` does. */
  start(spec: ComputerSpec, place: MachinePlace, signal: AbortSignal): Promise<Computer>;
  /** Names everything that must be equal in a computer for it to go on from what another was; files are not looked at. */
  identity(spec: ComputerSpec): Promise<string>;
  /** One that another process started at this place, if its monitor still runs. */
  adopt(place: Pick<MachinePlace, "dir">, process: MachineProcess): Promise<Computer | undefined>;
}

/** What a computer is made of. Paths are absolute. */
export interface ComputerSpec extends ComputerShape {
  readonly accelerator: Accelerator;
  readonly processors: number;
  readonly memoryMiB: number;
  /** Made by `makeDisk`; undefined: it has none. */
  readonly disk: ComputerDisk | undefined;
  /** The plain bytes of a CD. */
  readonly cdrom: string | undefined;
  /** What starts in place of the firmware; its first disk is `/dev/vda`. */
  readonly kernel: { readonly image: string; readonly initramfs: string } | undefined;
  /** The firmware's own memory, for `uefi`: a copy of `FIRMWARE.variables`. */
  readonly variables: string | undefined;
  /** What it goes on from: memory that it maps privately, and what `saveDevices` wrote of an equal computer. Without it, it starts anew. */
  readonly saved: { readonly memory: string; readonly devices: string } | undefined;
}

/** What a computer writes to, over what it began with. */
export interface ComputerDisk {
  readonly file: string;
  /** Plain bytes, read alone; undefined: it began empty. */
  readonly base: string | undefined;
}

/** UEFI for machines, of Debian's package `ovmf`. */
export const FIRMWARE = {
  code: "/usr/share/OVMF/OVMF_CODE_4M.fd",
  variables: "/usr/share/OVMF/OVMF_VARS_4M.fd",
} as const;

/** Where a computer's screen and its first serial port are, as sockets in its directory; of one with an agent also `MACHINE_PORTS`. */
export const COMPUTER_SOCKETS = { display: "display.sock", console: "console.sock" } as const;

/** One thing that a keyboard or a mouse says. */
export type InputEvent =
  | { readonly type: "key"; readonly key: string; readonly down: boolean }
  | { readonly type: "button"; readonly button: string; readonly down: boolean }
  /** From 0, at the left and at the top, to 1. */
  | { readonly type: "place"; readonly x: number; readonly y: number };

/** What the screen shows, and the BIOS, which a monitor that goes on from a saved state does not load. */
export const OTHER_MEMORY = ["screen", "bios"] as const;
export type OtherMemory = (typeof OTHER_MEMORY)[number];

/** A computer that was started. Orders reject with `SandboxLost` when the monitor is gone. */
export interface Computer {
  readonly process: MachineProcess;
  /** Resolves when the monitor has ended. */
  readonly ended: Promise<void>;
  isOn(): Promise<boolean>;
  /** Starts what it is made of anew, if it is off. */
  switchOn(): Promise<void>;
  /** Stops it where it is, and writes out what disks have taken. */
  switchOff(): Promise<void>;
  /** Lets one go on that was stopped. */
  goOn(): Promise<void>;
  /** Of a stopped one: the state of its devices. Memory, also of its screen, is as it lies. */
  saveDevices(): Promise<Buffer>;
  /** Where its memory begins in the monitor's process. */
  memoryAddress(): Promise<number>;
  /** Where it has more there that is not its memory and belongs to no device's state; what its system has not placed is left out. */
  otherMemory(): Promise<Readonly<Partial<Record<OtherMemory, ProcessMemory>>>>;
  /** As its button does; `on` is the state after it, whatever it was before. */
  reset(): Promise<void>;
  pressPower(): Promise<void>;
  /** Calls back when the agent's port is closed inside: its system goes down, or its agent does. */
  onAgentGone(gone: () => void): Disposable;
  /** Its screen as a PNG. */
  screenshot(): Promise<Buffer>;
  /** Its screen in plain points. */
  look(): Promise<Pixels>;
  /** At the same moment. */
  input(events: readonly InputEvent[]): Promise<void>;
  /** Stops talking to the monitor, which another process may adopt then. */
  leave(): void;
  /** Ends the monitor at once; safe twice. */
  end(): Promise<void>;
}
