import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { libcFunction } from "#host/sys/libc.ts";
import type { Hand, Slot } from "./hand.ts";
import type { LazyFile, Read, Requests } from "./requests.ts";

const INIT = { cloexec: 1, preContent: 8, unlimitedQueue: 16, unlimitedMarks: 32 } as const;
const MARK = { add: 1, remove: 2 } as const;
const PRE_ACCESS = 0x00100000;
const AT_FDCWD = -100;
const EVENT_BYTES = 24;
const INFO_RANGE = 6;
const ALLOW = 1;
const EIO = 5;
/** FAN_DENY with the error in the upper byte. */
const DENY_EIO = 2 | (EIO << 24);
/** One event and its range: room for two would hand out two. */
const READ_BYTES = 64;
/** Events come with a descriptor each, the lowest that is free. Far more than requests in hand and files together. */
const MAX_EVENT_FD = 8192;

/** A group whose events come before data is read, with a range. `EINVAL` on kernels before 6.14. */
export function openGroup(): number {
  const flags = INIT.cloexec | INIT.preContent | INIT.unlimitedQueue | INIT.unlimitedMarks;
  return fanotifyInit(flags, constants.O_RDONLY);
}

/**
 * From now on the group is asked before anybody reads the file: whoever opens it afterwards, and not whom had it open. Again is
 * no error. `EOPNOTSUPP` on a file system that has no such events.
 */
export function markFile(group: number, path: string): void {
  fanotifyMark(group, MARK.add, PRE_ACCESS, AT_FDCWD, path);
}

/** Reads go unasked from now on. Success when they did before. */
export function unmarkFile(group: number, path: string): void {
  try {
    fanotifyMark(group, MARK.remove, PRE_ACCESS, AT_FDCWD, path);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}

/** Events of a group. Each has a descriptor that is its name until it is answered. */
export class FanotifyRequests implements Requests {
  readonly #group: number;
  readonly #hand: Hand;
  readonly #resumed = new Set<number>();

  constructor(group: number, hand: Hand) {
    this.#group = group;
    this.#hand = hand;
  }

  receive(slot: Slot): boolean {
    return readSync(this.#group, slot.payload, 0, READ_BYTES, null) >= EVENT_BYTES;
  }

  look(slot: Slot): Read | undefined {
    const fd = eventFd(slot);
    // An event whose file could not be opened, or an overflow: there is nobody to answer.
    if (fd < 0) return void this.#hand.release(slot);
    if (slot.payload.readInt32LE(20) === process.pid) return void this.#answer(slot, ALLOW);
    if (fd > MAX_EVENT_FD) return void this.refuse(slot);
    slot.ino = fstatSync(fd).ino;
    return readOf(slot);
  }

  /** The descriptor went with its process. Its number must stay free of other events until the answer: they would be mixed up. */
  resume(slot: Slot): Read | undefined {
    const fd = eventFd(slot);
    if (slot.ino === 0 || fd < 0 || isOpen(fd)) return void this.#hand.release(slot);
    const placeholder = openSync("/dev/null", "r");
    if (placeholder !== fd) {
      dup2(placeholder, fd);
      closeSync(placeholder);
    }
    this.#resumed.add(fd);
    return readOf(slot);
  }

  /** A refused read is tried once more by the kernel: these readers see no error. */
  settle(): void {
    for (let fd = 0; fd <= MAX_EVENT_FD; fd++) if (!this.#resumed.has(fd)) this.#respond(fd, DENY_EIO);
    this.#resumed.clear();
  }

  grant(slot: Slot, _file: LazyFile): boolean {
    this.#answer(slot, ALLOW);
    return true;
  }

  refuse(slot: Slot): void {
    this.#answer(slot, DENY_EIO);
  }

  #answer(slot: Slot, response: number): void {
    const fd = eventFd(slot);
    this.#respond(fd, response);
    // Free before the number is: the next event may get it.
    this.#hand.release(slot);
    closeSync(fd);
  }

  #respond(fd: number, response: number): void {
    const answer = Buffer.allocUnsafe(8);
    answer.writeInt32LE(fd, 0);
    answer.writeUInt32LE(response, 4);
    try {
      writeSync(this.#group, answer);
    } catch (error) {
      // The reader was killed, or there is none.
      if (!hasCode(error, "ENOENT")) throw error;
    }
  }
}

function eventFd(slot: Slot): number {
  return slot.payload.readInt32LE(16);
}

/** An event without a range is about the whole file. */
function readOf({ payload, ino: id }: Slot): Read {
  const end = payload.readUInt32LE(0);
  for (let at = EVENT_BYTES; at + 4 <= end; at += Math.max(4, payload.readUInt16LE(at + 2))) {
    if (payload[at] !== INFO_RANGE) continue;
    return {
      id,
      offset: Number(payload.readBigUInt64LE(at + 8)),
      length: Number(payload.readBigUInt64LE(at + 16)),
    };
  }
  return { id, offset: 0, length: Number.MAX_SAFE_INTEGER };
}

function isOpen(fd: number): boolean {
  try {
    fstatSync(fd);
    return true;
  } catch (error) {
    if (hasCode(error, "EBADF")) return false;
    throw error;
  }
}

const fanotifyInit = libcFunction<[number, number]>("fanotify_init", ["int", "int"]);
const fanotifyMark = libcFunction<[number, number, number, number, string]>("fanotify_mark", [
  "int",
  "int",
  "ulong",
  "int",
  "text",
]);
const dup2 = libcFunction<[number, number]>("dup2", ["int", "int"]);
