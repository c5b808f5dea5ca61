import { closeSync, openSync, readSync, writevSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { MS, mount } from "#host/sys/mount.ts";
import type { Hand, Slot } from "./hand.ts";
import type { LazyFile, LazyFiles, Read, Requests } from "./requests.ts";

const OP = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  open: 14,
  read: 15,
  release: 18,
  init: 26,
  interrupt: 36,
  batchForget: 42,
};
const ERRNO = { ENOENT: 2, EIO: 5, EISDIR: 21, ENOSYS: 38 } as const;
const ROOT = 1;
const IN_HEADER_BYTES = 40;
const OUT_HEADER_BYTES = 16;
/** What the kernel may ask of the server at most; of the versions of the protocol that have all that is used here. */
const MINOR = 31;
const MAX_WRITE_BYTES = 4096;
const MAX_READ_PAGES = 256;
const INIT_FLAGS = { asyncRead: 1, maxPages: 1 << 22 } as const;
const KEEP_CACHE = 2;
/** Files never change: the kernel asks once. Seconds. */
const FOREVER_S = 2 ** 30;

/** The type of the file system, for people who look at mounts. */
const FUSE_TYPE = "fuse.dsec-lazy";

/** Mounts a directory of lazy files at `path`; whoever serves it needs the descriptor. `ENOENT` or `ENODEV` without FUSE. */
export function mountLazyFuse(path: string): number {
  const fd = openSync("/dev/fuse", "r+");
  try {
    const options = `fd=${fd},rootmode=40000,user_id=0,group_id=0,allow_other`;
    mount("dsec-lazy", path, FUSE_TYPE, MS.RDONLY | MS.NOSUID | MS.NODEV | MS.NOEXEC, options);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Requests of the file system. A file's number comes from its name: a server's successor knows it, and no other file ever has it. */
export class FuseRequests implements Requests {
  readonly #fd: number;
  readonly #hand: Hand;
  readonly #files: LazyFiles;
  readonly #data = Buffer.allocUnsafe(MAX_READ_PAGES * 4096);

  constructor(fd: number, hand: Hand, files: LazyFiles) {
    this.#fd = fd;
    this.#hand = hand;
    this.#files = files;
  }

  receive(slot: Slot): boolean {
    for (;;) {
      try {
        return readSync(this.#fd, slot.payload) > 0;
      } catch (error) {
        // Unmounted by its last user.
        if (hasCode(error, "ENODEV")) return false;
        // A request whose caller was killed before it was taken.
        if (!hasCode(error, "ENOENT", "EINTR", "EAGAIN")) throw error;
      }
    }
  }

  look(slot: Slot): Read | undefined {
    const { payload } = slot;
    if (payload.readUInt32LE(4) === OP.read) return this.#read(slot);
    this.#reply(slot, this.#answer(payload));
    return undefined;
  }

  resume(slot: Slot): Read | undefined {
    return this.look(slot);
  }

  settle(): void {
    // Requests are read into memory that stays: none is taken without a trace.
  }

  grant(slot: Slot, file: LazyFile): boolean {
    const { offset, length } = readOf(slot.payload);
    const end = Math.max(offset, Math.min(file.present.sizeBytes, offset + length));
    let filled = 0;
    while (filled < end - offset) {
      const count = readSync(file.fd, this.#data, filled, end - offset - filled, offset + filled);
      if (count === 0) break;
      filled += count;
    }
    // Eviction clears the bits first: while they are set, what was read was there.
    if (!file.present.hasRange(offset, end - offset)) return false;
    this.#reply(slot, this.#data.subarray(0, filled));
    return true;
  }

  refuse(slot: Slot): void {
    this.#reply(slot, ERRNO.EIO);
  }

  #read(slot: Slot): Read | undefined {
    const read = readOf(slot.payload);
    if (read.length <= this.#data.length) return read;
    return void this.refuse(slot);
  }

  /** A body, an error, or `undefined` for what the kernel wants no answer to. */
  #answer(payload: Buffer): Buffer | number | undefined {
    const nodeId = Number(payload.readBigUInt64LE(16));
    const body = payload.subarray(IN_HEADER_BYTES, payload.readUInt32LE(0));
    switch (payload.readUInt32LE(4)) {
      case OP.init:
        return initReply(body);
      case OP.lookup:
        return this.#lookup(nodeId, body);
      case OP.getattr:
        return this.#attributes(nodeId);
      case OP.open:
        return this.#files.byId(nodeId) === undefined ? ERRNO.ENOENT : openReply();
      case OP.release:
        return Buffer.alloc(0);
      case OP.forget:
      case OP.batchForget:
      case OP.interrupt:
        return undefined;
      default:
        return ERRNO.ENOSYS;
    }
  }

  #lookup(nodeId: number, body: Buffer): Buffer | number {
    const file = nodeId === ROOT ? this.#files.byName(body.toString("latin1", 0, body.indexOf(0))) : undefined;
    if (file === undefined) return ERRNO.ENOENT;
    const reply = Buffer.alloc(40 + ATTRIBUTES_BYTES);
    reply.writeBigUInt64LE(BigInt(file.id), 0);
    reply.writeBigUInt64LE(BigInt(FOREVER_S), 16);
    reply.writeBigUInt64LE(BigInt(FOREVER_S), 24);
    writeAttributes(reply.subarray(40), file.id, file.present.sizeBytes);
    return reply;
  }

  #attributes(nodeId: number): Buffer | number {
    const file = this.#files.byId(nodeId);
    if (file === undefined && nodeId !== ROOT) return ERRNO.ENOENT;
    const reply = Buffer.alloc(16 + ATTRIBUTES_BYTES);
    reply.writeBigUInt64LE(BigInt(FOREVER_S), 0);
    writeAttributes(reply.subarray(16), nodeId, file?.present.sizeBytes);
    return reply;
  }

  #reply(slot: Slot, answer: Buffer | number | undefined): void {
    if (answer !== undefined) {
      const body = typeof answer === "number" ? EMPTY : answer;
      const header = Buffer.allocUnsafe(OUT_HEADER_BYTES);
      header.writeUInt32LE(OUT_HEADER_BYTES + body.length, 0);
      header.writeInt32LE(typeof answer === "number" ? -answer : 0, 4);
      slot.payload.copy(header, 8, 8, 16);
      try {
        writevSync(this.#fd, [header, body]);
      } catch (error) {
        // Nobody waits for it any more, or the file system is gone.
        if (!hasCode(error, "ENOENT", "ENODEV", "EINTR", "EPERM")) throw error;
      }
    }
    this.#hand.release(slot);
  }
}

const EMPTY = Buffer.alloc(0);
const ATTRIBUTES_BYTES = 88;

function readOf(payload: Buffer): Read {
  return {
    id: Number(payload.readBigUInt64LE(16)),
    offset: Number(payload.readBigUInt64LE(IN_HEADER_BYTES + 8)),
    length: payload.readUInt32LE(IN_HEADER_BYTES + 16),
  };
}

/** The kernel says first what it can; what is used is what both can. */
function initReply(body: Buffer): Buffer {
  const reply = Buffer.alloc(64);
  reply.writeUInt32LE(7, 0);
  reply.writeUInt32LE(MINOR, 4);
  reply.writeUInt32LE(body.readUInt32LE(8), 8);
  reply.writeUInt32LE((body.readUInt32LE(12) & (INIT_FLAGS.asyncRead | INIT_FLAGS.maxPages)) >>> 0, 12);
  reply.writeUInt32LE(MAX_WRITE_BYTES, 20);
  reply.writeUInt32LE(1, 24);
  reply.writeUInt16LE(MAX_READ_PAGES, 28);
  return reply;
}

function openReply(): Buffer {
  const reply = Buffer.alloc(16);
  reply.writeUInt32LE(KEEP_CACHE, 8);
  return reply;
}

/** `sizeBytes` undefined: the directory. */
function writeAttributes(at: Buffer, ino: number, sizeBytes: number | undefined): void {
  at.writeBigUInt64LE(BigInt(ino), 0);
  at.writeBigUInt64LE(BigInt(sizeBytes ?? 0), 8);
  at.writeBigUInt64LE(BigInt(Math.ceil((sizeBytes ?? 0) / 512)), 16);
  at.writeUInt32LE(sizeBytes === undefined ? 0o40500 : 0o100400, 60);
  at.writeUInt32LE(sizeBytes === undefined ? 2 : 1, 64);
  at.writeUInt32LE(4096, 80);
}
