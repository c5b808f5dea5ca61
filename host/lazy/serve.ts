/**
 * The thread that takes requests of the kernel: it answers at once what is in the file and hands the rest to the main thread,
 * which may wait. It blocks in the kernel, so that nothing stands between a request and its answer; it ends with its process.
 */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { type FileChange, FileTable } from "./file-table.ts";
import { Hand, type Slot } from "./hand.ts";
import { openRequests } from "./open-requests.ts";
import { COUNT, type LazyFile, type Mechanism, type Read } from "./requests.ts";

/** What the thread is started with. */
export interface ServeOptions {
  readonly mechanism: Mechanism;
  readonly descriptor: number;
  readonly hand: string;
  /** Counts slots that the main thread has freed, for this one to wait on. */
  readonly freed: SharedArrayBuffer;
}

/** A read that the main thread must answer, and the slot that it is in. */
export interface Missed {
  readonly slot: number;
  readonly read: Read;
}

/** A read that was answered and met a mark. */
export interface Marked {
  readonly marked: Read;
}

/** Blocks until there will be no more requests. */
function serve({ mechanism, descriptor, hand: path, freed }: ServeOptions, port: MessagePort): void {
  const files = new FileTable(() => takeChanges(files, port));
  const hand = new Hand(path);
  const requests = openRequests({ mechanism, descriptor, hand, files });
  const frees = new Int32Array(freed);
  for (;;) {
    const slot = freeSlot(hand, frees);
    if (!requests.receive(slot)) return;
    takeChanges(files, port);
    const read = requests.look(slot);
    if (read === undefined) continue;
    const file = files.byId(read.id);
    if (file !== undefined && note(file, read) && requests.grant(slot, file)) {
      if (takeMark(file, read)) port.postMessage({ marked: read } satisfies Marked);
      continue;
    }
    const missed: Missed = { slot: slot.index, read };
    port.postMessage(missed);
  }
}

function takeChanges(files: FileTable, port: MessagePort): void {
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
    // The main thread sends nothing else.
    files.apply(next.message as FileChange);
  }
}

function freeSlot(hand: Hand, frees: Int32Array): Slot {
  for (;;) {
    const before = Atomics.load(frees, 0);
    const slot = hand.free();
    if (slot !== undefined) return slot;
    Atomics.wait(frees, 0, before);
  }
}

/** Notes what was asked for; true when all of it is there. */
function note({ present, touched, counts }: LazyFile, { offset, length }: Read): boolean {
  const { first, end } = present.span(offset, length);
  for (let piece = first; piece < end; piece++) if (!touched.has(piece)) touched.add(piece);
  const isHit = present.hasRange(offset, length);
  Atomics.add(counts, isHit ? COUNT.hits : COUNT.misses, 1);
  return isHit;
}

function takeMark({ marks }: LazyFile, { offset, length }: Read): boolean {
  const { first, end } = marks.span(offset, length);
  let isMarked = false;
  for (let piece = first; piece < end; piece++) if (marks.has(piece) && marks.remove(piece)) isMarked = true;
  return isMarked;
}

if (parentPort === null) throw new Error("this is the code of a thread");
serve(workerData as ServeOptions, parentPort);
