/** Measures one group of figures; yields each as soon as it is known. `note` prints for people. */
export type Bench = (note: (line: string) => void) => AsyncIterable<Measured>;

/** A figure as a bench knows it; its unit and bound are in `figures.tsv`. */
export interface Measured {
  readonly name: string;
  readonly value: number;
  /** Medians of other programs doing the same in the same run: milliseconds, or MB/s where the figure is. */
  readonly peers?: Readonly<Record<string, number>>;
  /** Median of the least the kernel needs for it, in the same. */
  readonly floor?: number;
  readonly note?: string;
}
