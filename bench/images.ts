import { execFileSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Client } from "#sdk";
import { startNode, type TestNode } from "#tests/support/node.ts";
import { writtenBytes } from "./disk.ts";
import { provideFetched } from "./fetched-set.ts";
import { IMAGES, type ImageRecipe } from "./image-recipes.ts";
import { IMAGE_BASE, provideImages } from "./image-set.ts";
import { measureReads } from "./lazy-reads.ts";
import type { Measured } from "./measured.ts";
import { type SlowStore, startSlowStore } from "./slow-store.ts";
import { inParallel, timeMs } from "./stats.ts";

type Note = (line: string) => void;

/** Images are made once, and used again by later runs. */
const SET_DIR = process.env.DSEC_BENCH_IMAGES ?? "/var/tmp/dsec-bench-images";
const DISTANCE = { bytesPerS: 100_000_000, delayMs: 5 };
/** The paper's burst in small: all images at once, each for four sandboxes. */
const SANDBOXES = 64;
const WIDTH = 16;
const HOUR_MS = 3_600_000;
const WORDS = ["--memory-overcommit=1000", "--cpu-overcommit=1000"];
/** Over the base it has 1 GB. */
const LARGE = "rust";

/** The speed of reads, then many sandboxes over many images whose data lies in a store: lazy, with all in the cache, and eager. */
export async function* measureImages(note: Note): AsyncGenerator<Measured> {
  yield* measureReads(note);
  const imageBytes = dataBytes(await provideImages(SET_DIR, note));
  const root = await provideFetched(SET_DIR, note);
  yield await measureCold(root, note);
  const lazy = await runOn(root, note, "lazy", async () => undefined);
  yield { name: "images.lazy_vs_cached", value: lazy.firstMs / lazy.againMs, note: seconds(lazy) };
  yield {
    name: "images.fetched_share",
    value: lazy.sentBytes / imageBytes,
    note: `${megabytes(lazy.sentBytes)} sent, which are ${share(lazy.plainBytes, imageBytes)} of ${megabytes(imageBytes)} of plain data`,
  };
  const eager = await runOn(root, note, "eager", (client, name) => client.artifacts.pull(name, { timeoutMs: HOUR_MS }));
  yield { name: "images.eager_vs_lazy", value: eager.firstMs / lazy.firstMs, note: seconds(eager) };
  yield {
    name: "images.write_saving",
    value: 1 - lazy.writtenBytes / eager.writtenBytes,
    note: `${megabytes(lazy.writtenBytes)} against ${megabytes(eager.writtenBytes)}`,
  };
}

/** From the create to the end of the first command, on a node that has nothing of an image, and on one that knows what was read before. */
async function measureCold(root: string, note: Note): Promise<Measured> {
  await using store = await startSlowStore(root, DISTANCE);
  const coldMs = async () => {
    await using node = await nodeOn(store);
    const tookMs = await timeMs(async () => {
      await using sandbox = await node.client.sandboxes.create({ base: IMAGE_BASE, workspace: LARGE });
      await sandbox.run(["python3", "-c", "print(1)"]);
    });
    // Traces are kept when a run has been quiet for a while.
    return tookMs;
  };
  const first = await coldMs();
  note(`cold: ${first.toFixed(0)} ms, ${megabytes(store.sentBytes)}`);
  return { name: "images.cold_first_command", value: first / 1_000, note: `${megabytes(store.sentBytes)} fetched` };
}

interface FleetRun {
  /** On a node that has nothing, then again on the same. */
  readonly firstMs: number;
  readonly againMs: number;
  /** Of the first. */
  readonly sentBytes: number;
  /** What came of data in both, as sandboxes see it. */
  readonly plainBytes: number;
  /** Of the first, to disks: layers and their data, and what sandboxes wrote. */
  readonly writtenBytes: number;
}

/** What is done about an artifact before a sandbox of it is made. */
type Prepare = (client: Client, artifact: string) => Promise<unknown>;

async function runOn(root: string, note: Note, name: string, prepare: Prepare): Promise<FleetRun> {
  await using store = await startSlowStore(root, DISTANCE);
  await using node = await nodeOn(store);
  const before = written(node);
  const round = () => timeMs(() => inParallel(SANDBOXES, WIDTH, (index) => testIn(node.client, index, prepare)));
  const firstMs = await round();
  const { sentBytes } = store;
  const writtenBytes = written(node) - before;
  const againMs = await round();
  const plainBytes = (await node.client.nodes.store())?.onDemand?.cachedBytes ?? 0;
  const run = { firstMs, againMs, sentBytes, plainBytes, writtenBytes };
  note(`${name}: ${seconds(run)}; ${megabytes(sentBytes)} sent, ${megabytes(writtenBytes)} written`);
  return run;
}

function nodeOn({ nodeOptions: { words, env } }: SlowStore): Promise<TestNode> {
  return startNode({ words: [...WORDS, ...words], env });
}

async function testIn(client: Client, index: number, prepare: Prepare): Promise<void> {
  const { name, test } = IMAGES[index % IMAGES.length] as ImageRecipe;
  for (const artifact of [IMAGE_BASE, name]) await prepare(client, artifact);
  const request = { base: IMAGE_BASE, workspace: name, resources: { cpus: 1, memoryMiB: 1_024 } };
  await using sandbox = await client.sandboxes.create(request);
  const result = await sandbox.run(`cd /project && ${test}`);
  if (!result.ok) throw new Error(`the test fails in ${name}: ${result.stderrText}`);
}

/** What a node has put on its disk: layers with their data as far as they take room, and the sectors of its volume. */
function written({ dataDir, runDir }: TestNode): number {
  execFileSync("sync", ["-f", dataDir]);
  const folders = ["images", "cache"].map((name) => join(dataDir, name));
  const words = ["-s", "-c", "-B1", ...folders];
  return (
    writtenBytes(runDir) + Number(execFileSync("du", words, { encoding: "utf8" }).split("\n").at(-2)?.split("\t")[0])
  );
}

/** Of the data of all layers of a store, each counted once. */
function dataBytes(root: string): number {
  const blobs = readdirSync(join(root, "blobs"));
  return blobs.reduce((sum, hex) => sum + statSync(join(root, "blobs", hex, "data")).size, 0);
}

function seconds({ firstMs, againMs }: FleetRun): string {
  return `${(firstMs / 1_000).toFixed(1)} s on a node that has nothing, ${(againMs / 1_000).toFixed(1)} s again`;
}

function share(bytes: number, wholeBytes: number): string {
  return `${megabytes(bytes)} or ${(bytes / wholeBytes).toFixed(2)}`;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}
