import { printFigure } from "./figure.ts";

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

const BENCHES: Readonly<Record<string, () => Promise<Bench>>> = {
  create: async () => (await import("./create.ts")).measureCreate,
  command: async () => (await import("./command.ts")).measureCommand,
  fncall: async () => (await import("./fncall.ts")).measureFncall,
  files: async () => (await import("./files.ts")).measureFiles,
  images: async () => (await import("./images.ts")).measureImages,
  fullvm: async () => (await import("./fullvm.ts")).measureFullvm,
  idle: async () => (await import("./idle.ts")).measureIdle,
  layers: async () => (await import("./layers.ts")).measureLayers,
  microvm: async () => (await import("./microvm.ts")).measureMicrovm,
  pack: async () => (await import("./pack.ts")).measurePack,
  stream: async () => (await import("./stream.ts")).measureStream,
};

const [name = ""] = process.argv.slice(2);
const load = BENCHES[name];
if (load === undefined) {
  console.error(`dsec: no bench ${JSON.stringify(name)}\nhint: one of ${Object.keys(BENCHES).join(", ")}`);
  process.exitCode = 125;
} else {
  const bench = await load();
  for await (const measured of bench((line) => console.error(line))) printFigure(measured);
}
