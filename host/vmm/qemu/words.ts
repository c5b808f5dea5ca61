import type { Accelerator, MachineDisk, MachineMemory, MachineRegion, MachineSpec } from "../vmm.ts";

/** What the words name beside the machine itself: sockets by their paths, files by descriptors that are inherited. */
export interface QemuParts {
  readonly uid: number;
  readonly emptyDir: string;
  readonly monitor: string;
  readonly control: string;
  readonly agent: string;
  readonly devicesIn: number | undefined;
  /** Of a memory file that is lent. */
  readonly memory: number | undefined;
}

/** The ring that keeps the end of the console. */
export const CONSOLE_RING = "console";
const CONSOLE_BYTES = 65_536;
const MIB = 1024 * 1024;
/** Translated code of an emulated guest: more than this is thrown away and made again. */
const TRANSLATED_MIB = 64;

/** What the library `host/cradle/lend.c` knows a lent file by: its descriptor follows. */
export const LENT = "/proc/dsec-lent-";
/** No pages are taken from the guest: it tells which are free. One that clears what it frees expects zeros there later, and then tells nothing. */
const REPORTING = "virtio-balloon-pci,free-page-reporting=on,page-poison=off,addr=3";

/** Memory by a name of ours. The others keep the parts of a saved state that QEMU leaves out when it saves devices alone out of what it wants to read. */
export const SAVED_WORDS = {
  machine: "memory-backend=memory,suppress-vmdesc=on",
  more: ["-global", "migration.send-configuration=off"],
} as const;
/** No default devices, no buses that nobody uses. */
const MACHINE = `q35,usb=off,smbus=off,sata=off,vmport=off,hpet=off,graphics=off,${SAVED_WORDS.machine}`;
const BASE = [
  ...["-nodefaults", "-no-user-config", "-display", "none", "-machine", MACHINE],
  ...SAVED_WORDS.more,
  // A guest that ends or starts anew is looked at before it goes.
  ...["-action", "reboot=shutdown,shutdown=pause", "-S"],
];
/** A tebibyte: a guest keeps the size that it has seen first, and none of our files is larger. */
const EMPTY_DISK = 2 ** 40;
/** Disks are in the slots behind the other devices, eight in each, up to the last before the chip set's own. */
const FIRST_DISK_SLOT = 4;
const PARTS_OF_SLOT = 8;
/** Of every monitor, beside its user and its root directory. */
export const CONFINED: readonly string[] = ["-sandbox", "on,obsolete=deny,spawn=deny,resourcecontrol=deny"];
/**
 * A kernel that is emulated on a busy host finds its timer late, and panics unless it is told not to look. One with memory above 4 GiB, where regions lie, takes 64 MiB for devices that
 * cannot reach it, which none of ours is.
 */
const KERNEL_WORDS = "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check swiotlb=noforce -- --machine";

/** The command line of QEMU for a machine. Equal machines have equal devices, in equal places: that is what saved states rest on. */
export function qemuWords(spec: MachineSpec, parts: QemuParts): readonly string[] {
  return [
    ...BASE,
    ...acceleratorWords(spec.accelerator, TRANSLATED_MIB),
    ...["-smp", String(spec.processors), "-m", sizeWord(spec), "-object", memoryOf(spec, parts)],
    ...["-kernel", spec.kernel, "-initrd", spec.initramfs, "-append", KERNEL_WORDS],
    ...["-chardev", `ringbuf,id=${CONSOLE_RING},size=${CONSOLE_BYTES}`, "-serial", `chardev:${CONSOLE_RING}`],
    ...["-device", "virtio-serial-pci,max_ports=4,addr=1", "-device", "virtio-rng-pci,addr=2"],
    ...(spec.lender === undefined ? [] : ["-device", REPORTING]),
    ...portWords("control", parts.control),
    ...portWords("agent", parts.agent),
    ...spec.disks.flatMap(diskWords),
    ...spec.regions.flatMap((region, number) => regionWords(region, number, spec.disks.length + number)),
    ...["-qmp", `unix:${escaped(parts.monitor)},server=on,wait=off`],
    ...incomingWords(parts.devicesIn),
    ...CONFINED,
    ...["-runas", `${parts.uid}:${parts.uid}`, "-chroot", parts.emptyDir],
  ];
}

/** The words that say what a machine is, without those that say where its parts are. */
export function shapeWords(spec: MachineSpec): readonly string[] {
  const { accelerator, processors, memory, disks, regions, lender } = spec;
  return qemuWords(
    {
      ...{
        accelerator,
        processors,
        memory: { sizeMiB: memory.sizeMiB },
        kernel: "",
        initramfs: "",
        devices: undefined,
        lender,
      },
      disks: disks.map((disk) => ({ ...disk, file: undefined })),
      regions: regions.map((region) => ({ ...region, file: undefined })),
    },
    { uid: 0, emptyDir: "", monitor: "", control: "", agent: "", devicesIn: undefined, memory: undefined },
  );
}

/** Translated code beyond `translatedMiB` is thrown away and made again. */
export function acceleratorWords(accelerator: Accelerator, translatedMiB: number): readonly string[] {
  if (accelerator === "kvm") return ["-accel", "kvm", "-cpu", "host"];
  // One thread for all processors: what runs beside each other on one host thread needs no locks.
  return ["-accel", `tcg,thread=single,tb-size=${translatedMiB}`, "-cpu", "max"];
}

/** A state of devices to go on from, by its descriptor. */
export function incomingWords(fd: number | undefined): readonly string[] {
  return fd === undefined ? [] : ["-incoming", `fd:${fd}`];
}

function memoryOf({ memory }: MachineSpec, parts: QemuParts): string {
  if (memory.file === undefined || parts.memory === undefined) return memoryWords(memory);
  return memoryWords({ ...memory, file: { ...memory.file, path: `${LENT}${parts.memory}` } });
}

/** The object `memory`. */
export function memoryWords({ sizeMiB, file }: MachineMemory): string {
  if (file === undefined) return `memory-backend-ram,id=memory,size=${sizeMiB}M`;
  const share = file.access === "shared" ? "on" : "off";
  return `memory-backend-file,id=memory,size=${sizeMiB}M,mem-path=${escaped(file.path)},share=${share}`;
}

function portWords(name: string, path: string): readonly string[] {
  return [
    ...["-chardev", `socket,id=${name},path=${escaped(path)},server=on,wait=off`],
    ...["-device", `virtserialport,chardev=${name},name=dsec.${name}`],
  ];
}

/** The host's page cache is shared by all machines that read a file; a write is durable when the guest flushes. */
function diskWords({ serial, file, access }: MachineDisk, number: number): readonly string[] {
  const mode = access === "read" ? "read-only=on" : "discard=unmap";
  const source =
    file === undefined
      ? `driver=null-co,size=${EMPTY_DISK},read-zeroes=on,node-name=${serial},${mode}`
      : `driver=raw,node-name=${serial},${mode},file.driver=file,file.locking=off,file.filename=${escaped(file)}`;
  // A guest hears of a full disk of the host as of any broken one: QEMU would hold it until there is room, which nobody makes.
  const faults = "werror=report,rerror=report";
  return [
    "-blockdev",
    source,
    "-device",
    `virtio-blk-pci,drive=${serial},serial=${serial},${faults},${placeWord(number)}`,
  ];
}

/** QEMU neither writes to the file nor lets a guest: memory that is not writable is dropped what is written to it. */
function regionWords({ file, sizeBytes }: MachineRegion, number: number, place: number): readonly string[] {
  const id = `pmem${number}`;
  const source = `memory-backend-file,id=${id},size=${sizeBytes},share=on,readonly=on,mem-path=${escaped(file ?? "")}`;
  return ["-object", source, "-device", `virtio-pmem-pci,memdev=${id},${placeWord(place)}`];
}

function placeWord(number: number): string {
  const [slot, part] = [FIRST_DISK_SLOT + Math.floor(number / PARTS_OF_SLOT), number % PARTS_OF_SLOT];
  return `bus=pcie.0,multifunction=on,addr=${slot.toString(16)}.${part}`;
}

/** Of the memory, and of the address space for what lies beside it. */
function sizeWord({ memory, regions }: MachineSpec): string {
  if (regions.length === 0) return `${memory.sizeMiB}M`;
  const regionsMiB = regions.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) / MIB;
  return `${memory.sizeMiB}M,slots=${regions.length},maxmem=${memory.sizeMiB + regionsMiB}M`;
}

/** A comma ends a value unless it comes twice. */
export function escaped(value: string): string {
  return value.replaceAll(",", ",,");
}
