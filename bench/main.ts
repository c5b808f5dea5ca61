import { printFigure } from "./figure.ts";
import type { Bench } from "./measured.ts";

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
