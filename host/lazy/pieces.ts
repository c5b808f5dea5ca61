/** Which pieces of a file are there. Threads may share one: it lives in shared memory, and a set bit is seen after what it stands for. */
export class PieceSet {
  readonly sizeBytes: number;
  readonly pieceBytes: number;
  /** Of the file. */
  readonly count: number;
  readonly bits: Uint8Array<SharedArrayBuffer>;

  /** `shared`: the memory of another set of the same file. */
  constructor(sizeBytes: number, pieceBytes: number, shared?: SharedArrayBuffer) {
    this.sizeBytes = sizeBytes;
    this.pieceBytes = pieceBytes;
    this.count = Math.ceil(sizeBytes / pieceBytes);
    this.bits = new Uint8Array(shared ?? new SharedArrayBuffer(Math.ceil(this.count / 8)));
  }

  has(piece: number): boolean {
    return (Atomics.load(this.bits, piece >> 3) & (1 << (piece & 7))) !== 0;
  }

  /** False when it was there already. */
  add(piece: number): boolean {
    const bit = 1 << (piece & 7);
    return (Atomics.or(this.bits, piece >> 3, bit) & bit) === 0;
  }

  /** False when it was not there. */
  remove(piece: number): boolean {
    const bit = 1 << (piece & 7);
    return (Atomics.and(this.bits, piece >> 3, ~bit) & bit) !== 0;
  }

  /** Nothing is there any more. */
  clear(): void {
    for (let at = 0; at < this.bits.length; at++) Atomics.store(this.bits, at, 0);
  }

  /** Whether every byte of the range is there; what lies behind the end of the file is. */
  hasRange(offset: number, length: number): boolean {
    const { first, end } = this.span(offset, length);
    for (let piece = first; piece < end; piece++) if (!this.has(piece)) return false;
    return true;
  }

  /** The pieces that a range of bytes touches: from `first` up to and without `end`. */
  span(offset: number, length: number): { readonly first: number; readonly end: number } {
    const first = Math.min(this.count, Math.floor(offset / this.pieceBytes));
    if (length === 0) return { first, end: first };
    return { first, end: Math.max(first, Math.min(this.count, Math.ceil((offset + length) / this.pieceBytes))) };
  }

  /** Of one piece; the last is shorter. */
  bytesOf(piece: number): number {
    return Math.min(this.pieceBytes, this.sizeBytes - piece * this.pieceBytes);
  }

  /** How many are there. */
  get present(): number {
    let present = 0;
    for (const byte of this.bits) for (let rest = byte; rest !== 0; rest &= rest - 1) present += 1;
    return present;
  }

  get isComplete(): boolean {
    return this.present === this.count;
  }

  /** Takes over what a file kept of an earlier set. Bits behind the last piece are ignored. */
  load(bytes: Uint8Array): void {
    for (let piece = 0; piece < Math.min(this.count, bytes.length * 8); piece++) {
      if (((bytes[piece >> 3] ?? 0) & (1 << (piece & 7))) !== 0) this.add(piece);
    }
  }

  /** A copy of the bits, for a file. */
  copy(): Uint8Array {
    return Uint8Array.from(this.bits);
  }
}
