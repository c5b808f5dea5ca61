import type { OutputChunk } from "#core/node.ts";
import type { StreamInfo } from "#core/sandbox.ts";
import { ALWAYS_KEPT_BYTES, type OutputBudget } from "#edge/output/budget.ts";
import { OutputFile } from "#edge/output/file.ts";

/** Output up to this size never touches the disk by itself: it goes into the journal with the command's end. */
export const SMALL_BYTES = 16 * 1024;

/** Where a log is kept, and how much of it. */
export interface OutputLogOptions {
  readonly path: string;
  /** Most bytes kept; half for the beginning, half for the end. */
  readonly capBytes: number;
  /** What all logs of the sandbox may keep together. */
  readonly budget: OutputBudget;
  /** Called when output can no longer be stored. */
  readonly onStoreError: (error: unknown) => void;
}

/** Someone whose unread bytes must not be dropped. */
interface Holder {
  offset: number;
}

/**
 * One output stream of one command: byte-exact, bounded, readable at any offset while it grows and after its end.
 *
 * Bytes are _seen_ in the order of their offsets, each once, however often they arrive. They are _safe_ when the loss of this
 * process would not lose them; only then may the agent forget them. Little output stays in memory, unsafe, until the end is
 * recorded with it; more goes to a file at once. Bytes that would push out what a holder has not read wait in memory, unsafe:
 * the agent's window stops the command.
 */
export class OutputLog implements Disposable {
  readonly #options: OutputLogOptions;
  readonly #holders = new Set<Holder>();
  readonly #changed = new Set<() => void>();
  #file: OutputFile | undefined;
  #small: Uint8Array[] = [];
  #smallBytes = 0;
  /** Seen, and not stored because of a holder. Never longer than the agent's window. */
  #waiting: Uint8Array[] = [];
  /** Most bytes kept: lower than asked for once the sandbox's budget was used up. */
  #capBytes: number;
  /** Bytes of the budget that are this log's. */
  #budgetedBytes = 0;
  /** Bytes taken into small, file or nowhere (after a disk error). */
  #taken = 0;
  #recorded = false;
  #broken = false;
  #ended = false;

  constructor(options: OutputLogOptions) {
    this.#options = options;
    this.#capBytes = options.capBytes;
  }

  /** The log of a command that an earlier process ran; `small` and `info` are what the journal has of it. */
  static reopen(options: OutputLogOptions, small: Uint8Array | undefined, info: StreamInfo | undefined): OutputLog {
    const log = new OutputLog(options);
    // Output that is whole in the journal has no file worth looking for.
    const whole = info?.ended === true && small?.length === info.seen;
    const file = whole ? undefined : OutputFile.open(options.path);
    if (file === undefined) log.#restore(small ?? new Uint8Array(), info);
    else log.#continue(file, small ?? new Uint8Array(), info);
    log.#budgetedBytes = Math.min(log.#capBytes, log.#stored);
    log.#recorded = info !== undefined;
    log.#ended = info?.ended ?? false;
    return log;
  }

  /** What it takes of the sandbox's budget. */
  get budgetedBytes(): number {
    return this.#budgetedBytes;
  }

  get capBytes(): number {
    return this.#capBytes;
  }

  get info(): StreamInfo {
    const kept = this.#kept;
    return { seen: this.seen, kept, truncated: kept < this.#taken, ended: this.#ended };
  }

  /** One past the last byte that arrived. */
  get seen(): number {
    return this.#waiting.reduce((sum, bytes) => sum + bytes.length, this.#taken);
  }

  /** One past the last byte that the agent may forget. */
  get safe(): number {
    return this.#file !== undefined || this.#recorded || this.#broken ? this.#taken : 0;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** What the journal must keep of it: undefined when a file has it. */
  get small(): Uint8Array | undefined {
    return this.#file === undefined ? Buffer.concat(this.#small) : undefined;
  }

  /** Takes output at `offset`; bytes seen before are skipped. Throws a plain `Error` for a gap: the agent never makes one. */
  append(offset: number, bytes: Uint8Array): void {
    const seen = this.seen;
    if (offset > seen) throw new Error(`output at ${offset} after ${seen}`);
    if (offset + bytes.length <= seen) return;
    this.#waiting.push(bytes.subarray(seen - offset));
    this.#settle();
    // What has to wait outlives this call, the caller's buffer does not.
    const last = this.#waiting.pop();
    if (last !== undefined) this.#waiting.push(new Uint8Array(last));
    this.#wake();
  }

  /** Nobody writes any more. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** The journal has `small` now: it is safe, and whatever follows goes to the file. */
  recorded(): void {
    this.#recorded = true;
  }

  /**
   * The next readable chunk at or after `offset`, no longer than `buffer`, which may hold its bytes; undefined when there is
   * none yet, or none any more.
   */
  read(offset: number, buffer: Buffer): OutputChunk | undefined {
    const at = this.#readable(offset);
    if (at === undefined) return undefined;
    if (this.#file === undefined) {
      const bytes = Buffer.concat(this.#small).subarray(at, at + buffer.length);
      return { offset: at, bytes };
    }
    return { offset: at, bytes: this.#file.read(at, buffer.subarray(0, this.#end(at) - at)) };
  }

  /** Until disposed, nothing from `offset` on is dropped; `move` says how far the holder has read. */
  hold(offset: number): Disposable & { move(offset: number): void } {
    const holder: Holder = { offset };
    this.#holders.add(holder);
    return {
      move: (to) => {
        holder.offset = to;
        this.#resume();
      },
      [Symbol.dispose]: () => {
        this.#holders.delete(holder);
        this.#resume();
      },
    };
  }

  /** Calls back whenever there may be more to read or to acknowledge. */
  watch(changed: () => void): Disposable {
    this.#changed.add(changed);
    return { [Symbol.dispose]: () => this.#changed.delete(changed) };
  }

  [Symbol.dispose](): void {
    this.#file?.[Symbol.dispose]();
    this.#file = undefined;
  }

  get #stored(): number {
    return this.#file?.stored ?? this.#smallBytes;
  }

  get #kept(): number {
    const file = this.#file;
    if (file === undefined) return this.#smallBytes;
    return Math.min(file.stored, file.headBytes) + Math.max(0, file.stored - file.tailFrom);
  }

  #continue(file: OutputFile, small: Uint8Array, info: StreamInfo | undefined): void {
    // The process died while it moved recorded output into the file; the agent has forgotten that output by now.
    if (file.stored < small.length) file.append(small.subarray(file.stored));
    this.#file = file;
    this.#capBytes = file.capBytes;
    this.#taken = Math.max(file.stored, info?.seen ?? 0);
    // A stream that went on after its file stopped growing had lost its disk.
    this.#broken = this.#taken > file.stored;
  }

  #restore(small: Uint8Array, info: StreamInfo | undefined): void {
    this.#small = [small];
    this.#smallBytes = small.length;
    this.#taken = info === undefined ? small.length : Math.max(small.length, info.seen);
    this.#broken = this.#taken > small.length;
  }

  #resume(): void {
    if (this.#waiting.length === 0) return;
    this.#settle();
    this.#wake();
  }

  /** Stores as much of what waits as the holders allow. */
  #settle(): void {
    for (let bytes = this.#waiting[0]; bytes !== undefined; bytes = this.#waiting[0]) {
      this.#growBy(bytes.length);
      const room = this.#room();
      if (room <= 0) return;
      this.#store(bytes.subarray(0, room));
      if (bytes.length <= room) this.#waiting.shift();
      else this.#waiting[0] = bytes.subarray(room);
    }
  }

  /** Takes of the budget what the next bytes need, or keeps to what it has: before anything is stored under the lower cap. */
  #growBy(bytes: number): void {
    const wanted = Math.min(this.#capBytes, this.#stored + bytes) - this.#budgetedBytes;
    if (wanted <= 0 || this.#broken) return;
    const free = Math.min(wanted, Math.max(0, ALWAYS_KEPT_BYTES - this.#budgetedBytes));
    this.#options.budget.take(free);
    this.#budgetedBytes += free;
    if (free === wanted) return;
    if (this.#options.budget.grow(wanted - free)) {
      this.#budgetedBytes += wanted - free;
      return;
    }
    this.#capBytes = this.#budgetedBytes;
    this.#file?.lowerCap(this.#capBytes);
  }

  /** Bytes that can be stored without dropping what a holder still has to read. */
  #room(): number {
    if (this.#holders.size === 0 || this.#broken) return Number.MAX_SAFE_INTEGER;
    const head = Math.floor(this.#capBytes / 2);
    let oldest = Number.MAX_SAFE_INTEGER;
    for (const holder of this.#holders) oldest = Math.min(oldest, holder.offset);
    return Math.max(head, oldest) + (this.#capBytes - head) - this.#taken;
  }

  #store(bytes: Uint8Array): void {
    this.#taken += bytes.length;
    if (this.#broken) return;
    if (this.#file === undefined && !this.#recorded && this.#smallBytes + bytes.length <= this.#smallLimit) {
      this.#small.push(new Uint8Array(bytes));
      this.#smallBytes += bytes.length;
      return;
    }
    try {
      this.#file ??= this.#spill();
      this.#file.append(bytes);
    } catch (error) {
      // The command goes on without its log: a full disk of the node is not the command's fault.
      this.#broken = true;
      this.#options.onStoreError(error);
    }
  }

  get #smallLimit(): number {
    return Math.min(SMALL_BYTES, this.#capBytes);
  }

  #spill(): OutputFile {
    const file = OutputFile.create(this.#options.path, this.#capBytes);
    try {
      for (const bytes of this.#small) file.append(bytes);
    } catch (error) {
      file[Symbol.dispose]();
      throw error;
    }
    this.#small = [];
    this.#smallBytes = 0;
    return file;
  }

  #readable(offset: number): number | undefined {
    const file = this.#file;
    const stored = this.#stored;
    if (offset >= stored) return undefined;
    if (file === undefined || offset < file.headBytes || offset >= file.tailFrom) return offset;
    return file.tailFrom < stored ? file.tailFrom : undefined;
  }

  /** End of the run of readable bytes that holds `at`: the head stops where dropped bytes begin. */
  #end(at: number): number {
    const file = this.#file;
    if (file === undefined) return this.#stored;
    return at < file.headBytes && file.tailFrom > file.headBytes ? Math.min(file.headBytes, file.stored) : file.stored;
  }

  #wake(): void {
    for (const changed of [...this.#changed]) changed();
  }
}
