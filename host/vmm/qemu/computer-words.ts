import { type ComputerSpec, FIRMWARE } from "../computer.ts";
import { acceleratorWords, CONFINED, escaped } from "./words.ts";

/** What the words name beside the computer itself. */
export interface ComputerParts {
  readonly uid: number;
  /** Holds nothing but the file for pictures of the screen. */
  readonly rootDir: string;
  readonly monitor: string;
  readonly display: string;
  readonly console: string;
}

/** Of a whole system more is translated than of a sandbox alone. */
const TRANSLATED_MIB = 128;
const SCREEN = "VGA,edid=on,xres=1024,yres=768";

const PROFILES = {
  virtio: {
    machine: "q35",
    usb: "qemu-xhci,id=usb",
    disk: "virtio-blk-pci,drive=disk,bootindex=0",
    cdrom: "ide-cd,bus=ide.0,drive=cdrom,bootindex=1",
    more: ["-device", "virtio-rng-pci"],
  },
  emulated: {
    machine: "pc",
    usb: "piix3-usb-uhci,id=usb",
    disk: "ide-hd,bus=ide.0,drive=disk,bootindex=0",
    cdrom: "ide-cd,bus=ide.1,drive=cdrom,bootindex=1",
    more: [],
  },
} as const;

/** The command line of QEMU for a computer: no network, no sound, nothing of the host. */
export function computerWords(spec: ComputerSpec, parts: ComputerParts): readonly string[] {
  const { machine, usb, disk, cdrom, more } = PROFILES[spec.devices];
  const firmware = spec.variables === undefined ? "" : ",pflash0=code,pflash1=variables";
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none"],
    ...["-machine", `${machine},usb=off,vmport=off${firmware}`],
    ...["-action", "shutdown=pause", "-S", "-rtc", "base=utc", "-boot", "strict=on"],
    ...acceleratorWords(spec.accelerator, TRANSLATED_MIB),
    ...["-smp", String(spec.processors), "-m", `${spec.memoryMiB}M`],
    ...(spec.variables === undefined
      ? []
      : [...fileWords("code", FIRMWARE.code, "read"), ...fileWords("variables", spec.variables, "write")]),
    ...["-device", SCREEN, "-device", usb, "-device", "usb-tablet,bus=usb.0", ...more],
    ...(spec.disk === undefined ? [] : [...diskWords(spec.disk), "-device", disk]),
    ...(spec.cdrom === undefined ? [] : [...fileWords("cdrom", spec.cdrom, "read"), "-device", cdrom]),
    ...["-vnc", `unix:${escaped(parts.display)},share=force-shared`],
    ...[
      "-chardev",
      `socket,id=console,path=${escaped(parts.console)},server=on,wait=off`,
      "-serial",
      "chardev:console",
    ],
    ...["-qmp", `unix:${escaped(parts.monitor)},server=on,wait=off`],
    ...CONFINED,
    ...["-runas", `${parts.uid}:${parts.uid}`, "-chroot", parts.rootDir],
  ];
}

/** What lies below is said here, whatever the disk says: its system could have written that. */
function diskWords({ file, base }: NonNullable<ComputerSpec["disk"]>): readonly string[] {
  const below = base === undefined ? "backing=" : "backing=base";
  const disk = `driver=qcow2,node-name=disk,discard=unmap,${below},file.driver=file,file.locking=off,file.filename=${escaped(file)}`;
  return [...(base === undefined ? [] : fileWords("base", base, "read")), "-blockdev", disk];
}

function fileWords(name: string, file: string, access: "read" | "write"): readonly string[] {
  const mode = access === "read" ? "read-only=on" : "read-only=off";
  return [
    "-blockdev",
    `driver=raw,node-name=${name},${mode},file.driver=file,file.locking=off,file.filename=${escaped(file)}`,
  ];
}
