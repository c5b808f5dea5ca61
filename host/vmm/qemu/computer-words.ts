import { type ComputerSpec, FIRMWARE } from "../computer.ts";
import { acceleratorWords, CONFINED, escaped, incomingWords, memoryWords, SAVED_WORDS } from "./words.ts";

/** What the words name beside the computer itself. */
export interface ComputerParts {
  readonly uid: number;
  /** Holds nothing but the files that it is asked to write. */
  readonly rootDir: string;
  readonly monitor: string;
  readonly display: string;
  readonly console: string;
  readonly control: string;
  readonly agent: string;
  readonly devicesIn: number | undefined;
}

/** The device of the agent's port, in what QEMU tells of it. */
export const AGENT_PORT = "agent-port";
/** A kernel that is emulated on a busy host finds its timer late, and panics unless it is told not to look. */
const KERNEL_WORDS = "root=/dev/vda rw console=tty0 console=ttyS0 quiet random.trust_cpu=on no_timer_check";

/** Of a whole system more is translated than of a sandbox alone. */
const TRANSLATED_MIB = 128;
const SCREEN = "VGA,edid=on,xres=1024,yres=768";
/** A system hears of a full disk of the host as of any broken one: QEMU would hold it until there is room, which nobody makes. */
const FAULTS = "werror=report,rerror=report";

/** A kernel that is given to QEMU comes first of all: it takes place 0. */
const PROFILES = {
  virtio: {
    machine: "q35",
    usb: "qemu-xhci,id=usb",
    disk: `virtio-blk-pci,drive=disk,bootindex=1,${FAULTS}`,
    cdrom: "ide-cd,bus=ide.0,drive=cdrom,bootindex=2",
    more: ["-device", "virtio-rng-pci"],
  },
  emulated: {
    machine: "pc",
    usb: "piix3-usb-uhci,id=usb",
    disk: `ide-hd,bus=ide.0,drive=disk,bootindex=1,${FAULTS}`,
    cdrom: "ide-cd,bus=ide.1,drive=cdrom,bootindex=2",
    more: [],
  },
} as const;

/** The command line of QEMU for a computer: no network, no sound, nothing of the host. */
export function computerWords(spec: ComputerSpec, parts: ComputerParts): readonly string[] {
  const { machine, usb, disk, cdrom, more } = PROFILES[spec.devices];
  const firmware = spec.variables === undefined ? "" : ",pflash0=code,pflash1=variables";
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none"],
    ...["-machine", `${machine},usb=off,vmport=off,${SAVED_WORDS.machine}${firmware}`, ...SAVED_WORDS.more],
    ...["-action", "shutdown=pause", "-S", "-rtc", "base=utc", "-boot", "strict=on"],
    ...acceleratorWords(spec.accelerator, TRANSLATED_MIB),
    ...["-smp", String(spec.processors), "-m", `${spec.memoryMiB}M`, "-object", memoryOf(spec)],
    ...(spec.variables === undefined
      ? []
      : [...fileWords("code", FIRMWARE.code, "read"), ...fileWords("variables", spec.variables, "write")]),
    ...["-device", SCREEN, "-device", usb, "-device", "usb-tablet,bus=usb.0", ...more],
    ...(spec.disk === undefined ? [] : [...diskWords(spec.disk), "-device", disk]),
    ...(spec.cdrom === undefined ? [] : [...fileWords("cdrom", spec.cdrom, "read"), "-device", cdrom]),
    ...kernelWords(spec),
    ...(spec.agent === true ? agentWords(parts) : []),
    ...["-vnc", `unix:${escaped(parts.display)},share=force-shared`],
    ...[
      "-chardev",
      `socket,id=console,path=${escaped(parts.console)},server=on,wait=off`,
      "-serial",
      "chardev:console",
    ],
    ...["-qmp", `unix:${escaped(parts.monitor)},server=on,wait=off`],
    ...incomingWords(parts.devicesIn),
    ...CONFINED,
    ...["-runas", `${parts.uid}:${parts.uid}`, "-chroot", parts.rootDir],
  ];
}

function memoryOf({ memoryMiB, saved }: ComputerSpec): string {
  return memoryWords({
    sizeMiB: memoryMiB,
    ...(saved && { file: { path: saved.memory, access: "private" } }),
  });
}

/** The words that say what a computer is, without those that say where its parts are. */
export function computerShape(spec: ComputerSpec): readonly string[] {
  const nowhere = { monitor: "", display: "", console: "", control: "", agent: "", rootDir: "", uid: 0 };
  const { disk, cdrom, kernel, variables } = spec;
  const bare = {
    ...spec,
    saved: undefined,
    disk: disk && { file: "", base: disk.base && "" },
    cdrom: cdrom && "",
    kernel: kernel && { image: "", initramfs: "" },
    variables: variables && "",
  };
  return computerWords(bare, { ...nowhere, devicesIn: undefined });
}

function kernelWords({ kernel }: ComputerSpec): readonly string[] {
  return kernel === undefined ? [] : ["-kernel", kernel.image, "-initrd", kernel.initramfs, "-append", KERNEL_WORDS];
}

/** The ports that the first process of a machine has; what QEMU tells about one goes by its device's name. */
function agentWords({ control, agent }: ComputerParts): readonly string[] {
  const port = (name: string, path: string, id: string) => [
    ...["-chardev", `socket,id=${name},path=${escaped(path)},server=on,wait=off`],
    ...["-device", `virtserialport,chardev=${name},name=dsec.${name},id=${id}`],
  ];
  return [
    "-device",
    "virtio-serial-pci,max_ports=4",
    ...port("control", control, "control-port"),
    ...port("agent", agent, AGENT_PORT),
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
