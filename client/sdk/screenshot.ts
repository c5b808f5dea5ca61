/** A picture of a screen. */
export interface Screenshot {
  readonly png: Uint8Array;
  /** False: it was still changing. */
  readonly settled: boolean;
}
