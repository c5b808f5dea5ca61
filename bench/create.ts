import type { Client, Sandbox } from "#sdk";
import { BASE, startNodeWithBase } from "#tests/support/sandbox.ts";
import { measureFloor } from "./floor.ts";
import type { Measured } from "./measured.ts";
import { PEERS, Peers } from "./peers.ts";
import { describeMs, inParallel, median, timeMs } from "./stats.ts";

/** Rounds of all competitors in turn, so that a busy moment of the machine meets each of them. */
const ROUNDS = 12;
const PER_ROUND = { floor: 20, ours: 20, runc: 3, crun: 5 };
const WIDTH = 16;
const FEW_LIVE = 10;
const MANY_LIVE = 2_000;
const SAMPLES_AT_LOAD = 60;
/** The bench measures creation, not admission: two thousand sandboxes of this size fit a small machine. */
const REQUEST = { base: BASE, resources: { cpus: 0.5, memoryMiB: 128 } };
const WORDS = ["--memory-overcommit=1000", "--cpu-overcommit=1000"];

type Note = (line: string) => void;

/** Creation through the SDK beside floor and peers; then its rate, and what two thousand live sandboxes do to it. */
export async function* measureCreate(note: Note): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ words: WORDS, runInMemory: true });
  yield* compare(node.client, note);
  yield* load(node.client, note);
}

async function* compare(client: Client, note: Note): AsyncGenerator<Measured> {
  const times = await interleave(client);
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  const ours = median(times.ours);
  const floor = median(times.floor);
  const peers = { runc: median(times.runc), crun: median(times.crun) };
  yield { name: "create.p50", value: ours / floor, floor, peers, note: `ours ${ours.toFixed(2)} ms` };
  for (const peer of PEERS) yield { name: `create.vs_${peer}`, value: peers[peer] / ours, floor, peers };
}

async function interleave(client: Client): Promise<Record<"floor" | "ours" | "runc" | "crun", number[]>> {
  await using peers = new Peers();
  const times = { floor: [] as number[], ours: [] as number[], runc: [] as number[], crun: [] as number[] };
  await createAndRemove(client, PER_ROUND.ours);
  for (let round = 0; round < ROUNDS; round++) {
    times.floor.push(...measureFloor(peers.rootfs, PER_ROUND.floor));
    times.ours.push(...(await createAndRemove(client, PER_ROUND.ours)));
    for (const peer of PEERS) times[peer].push(...(await peers.run(peer, PER_ROUND[peer])));
  }
  return times;
}

/** Filling the node gives the rate; creation beside few and beside many gives the growth. */
async function* load(client: Client, note: Note): AsyncGenerator<Measured> {
  const few = await fill(client, FEW_LIVE);
  const atFew = await createAndRemove(client, SAMPLES_AT_LOAD);
  const fillMs = await timeMs(() => fill(client, MANY_LIVE - few.length));
  yield { name: "create.rate", value: ((MANY_LIVE - few.length) / fillMs) * 1_000, note: `${WIDTH} at a time` };
  const atMany = await createAndRemove(client, SAMPLES_AT_LOAD);
  note(`at ${FEW_LIVE} live: ${describeMs(atFew)}\nat ${MANY_LIVE} live: ${describeMs(atMany)}`);
  const medians = `${median(atFew).toFixed(2)} ms at ${FEW_LIVE}, ${median(atMany).toFixed(2)} ms at ${MANY_LIVE}`;
  yield { name: "create.growth", value: median(atMany) / median(atFew), note: medians };
}

function fill(client: Client, count: number): Promise<Sandbox[]> {
  return inParallel(count, WIDTH, () => client.sandboxes.create(REQUEST));
}

/** Milliseconds of each creation. Removals come after the last: what they leave to the kernel is no part of a creation. */
async function createAndRemove(client: Client, count: number): Promise<number[]> {
  await using made = new AsyncDisposableStack();
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    made.use(await client.sandboxes.create(REQUEST));
    times.push(performance.now() - start);
  }
  return times;
}
