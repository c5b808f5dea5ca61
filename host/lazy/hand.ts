import { closeSync, fstatSync, openSync, writeSync } from "node:fs";
import { mapShared } from "#host/sys/shared-memory.ts";

/** Requests of the kernel that one server has taken and not answered yet; the rest wait in the kernel. */
const SLOTS = 128;
/** The least that the kernel of FUSE reads into; a fanotify event is far smaller. */
const PAYLOAD_BYTES = 8192;
const HEADER_BYTES = 16;
const SLOT_BYTES = HEADER_BYTES + PAYLOAD_BYTES;

/** Room for one request. */
export interface Slot {
  readonly index: number;
  /** The kernel writes the request here, its length in the first four bytes. */
  readonly payload: Buffer;
  /** Which file it is about, where the request itself does not say; 0: not known. */
  ino: number;
}

/**
 * The requests that the server of lazy files has in hand, in memory that outlives it: the kernel hands a request out once, so
 * that what a killed server had taken its successor must find here. A request is read straight into its slot. Both
 * threads of a server see the same slots; one takes them, either frees them.
 */
export class Hand {
  readonly #memory: Buffer;
  readonly #slots: readonly Slot[];

  /** Opens the file, making it. */
  constructor(path: string) {
    this.#memory = mapFile(path, SLOTS * SLOT_BYTES);
    this.#slots = Array.from({ length: SLOTS }, (_, index) => new MappedSlot(this.#memory, index));
  }

  /** A slot to read a request into; `undefined` when all are taken. */
  free(): Slot | undefined {
    return this.#slots.find((slot) => slot.payload.readUInt32LE(0) === 0);
  }

  at(index: number): Slot {
    const slot = this.#slots[index];
    if (slot === undefined) throw new Error(`no slot ${index}`);
    return slot;
  }

  /** The slots with a request. */
  taken(): readonly Slot[] {
    return this.#slots.filter((slot) => slot.payload.readUInt32LE(0) !== 0);
  }

  /** To be called once the request is answered. */
  release(slot: Slot): void {
    slot.ino = 0;
    slot.payload.writeUInt32LE(0, 0);
  }
}

/** Written out first: a page that the file system has no room for would end the process when it is touched. */
function mapFile(path: string, bytes: number): Buffer {
  closeSync(openSync(path, "a", 0o600));
  const fd = openSync(path, "r+");
  try {
    if (fstatSync(fd).size !== bytes) writeSync(fd, Buffer.alloc(bytes), 0, bytes, 0);
    return mapShared(fd, bytes);
  } finally {
    closeSync(fd);
  }
}

class MappedSlot implements Slot {
  readonly index: number;
  readonly payload: Buffer;
  readonly #header: Buffer;

  constructor(memory: Buffer, index: number) {
    this.index = index;
    const start = index * SLOT_BYTES;
    this.#header = memory.subarray(start, start + HEADER_BYTES);
    this.payload = memory.subarray(start + HEADER_BYTES, start + SLOT_BYTES);
  }

  get ino(): number {
    return this.#header.readDoubleLE(0);
  }

  set ino(ino: number) {
    this.#header.writeDoubleLE(ino, 0);
  }
}
