import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, NodeTransport, type Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { parseFields, residentKiB } from "./memory.ts";
import { inParallel, median, timeMs } from "./stats.ts";
import { countOutput, StreamPeers } from "./stream-peers.ts";

const MB = 1e6;
const ROUNDS = 5;
/** Of one round: long enough that start and end do not count, short enough to take turns with the peers. */
const ROUND_BYTES = 512 * 1024 * 1024;
const GROWTH_BYTES = 2_000 * 1024 * 1024;
const ATTACHED = 2_000;
const ATTACHED_TO = 20;
const CLI = join(import.meta.dirname, "../bin/dsec.ts");

/** What a command writes as fast as it can. */
function flood(bytes: number): string[] {
  return ["dd", "if=/dev/zero", "bs=256k", `count=${bytes / (256 * 1024)}`, "status=none"];
}

/** One stream to one client, beside peers that carry the same bytes; then what streams cost the node in memory. */
export async function* measureStream(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ runInMemory: true });
  await using sandbox = await node.client.sandboxes.create({ base: BASE });
  yield* compare(node, sandbox, note);
  yield await growth(node, sandbox);
  yield await attached(node, note);
}

/** All competitors in turn, so that a busy moment of the machine meets each of them. Megabytes a second. */
async function* compare(node: TestNode, sandbox: Sandbox, note: (line: string) => void): AsyncGenerator<Measured> {
  await using peers = new StreamPeers(note);
  const cli = [process.execPath, CLI, "exec", sandbox.id, "--"];
  const runs: Readonly<Record<string, (argv: readonly string[]) => Promise<number>>> = {
    sdk: (argv) => readAll(sandbox, argv),
    cli: (argv) => countOutput([...cli, ...argv], { ...process.env, ...node.env }),
    ...peers.programs,
  };
  const rates = new Map(Object.keys(runs).map((name) => [name, [] as number[]]));
  await readAll(sandbox, flood(ROUND_BYTES));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, run] of Object.entries(runs)) rates.get(name)?.push(await rateOf(run));
  }
  for (const [name, each] of rates) note(`${name}: ${each.map((rate) => rate.toFixed(0)).join(" ")} MB/s`);
  const { sdk = Number.NaN, ...others } = Object.fromEntries([...rates].map(([name, each]) => [name, median(each)]));
  yield { name: "stream.stdout", value: sdk, peers: others, note: "MB/s all; cli is dsec exec into a pipe" };
}

/** Megabytes a second from the start of the command to its last byte. */
async function rateOf(run: (argv: readonly string[]) => Promise<number>): Promise<number> {
  let seen = 0;
  const tookMs = await timeMs(async () => {
    seen = await run(flood(ROUND_BYTES));
  });
  if (seen !== ROUND_BYTES) throw new Error(`${seen} of ${ROUND_BYTES} bytes arrived`);
  return seen / MB / (tookMs / 1_000);
}

async function readAll(sandbox: Sandbox, argv: readonly string[]): Promise<number> {
  const command = await sandbox.start(argv);
  let seen = 0;
  for await (const bytes of command.stdout({ hold: true })) seen += bytes.byteLength;
  return seen;
}

/** The most the node had in memory while the bytes passed, over what it had before: the kernel keeps the mark. */
async function growth(node: TestNode, sandbox: Sandbox): Promise<Measured> {
  writeFileSync(`/proc/${node.pid}/clear_refs`, "5");
  const beforeKiB = residentKiB(node.pid);
  await readAll(sandbox, flood(GROWTH_BYTES));
  const mostKiB = parseFields(readFileSync(`/proc/${node.pid}/status`, "utf8")).get("VmHWM") ?? Number.NaN;
  return { name: "stream.edge_growth", value: ((mostKiB - beforeKiB) * 1024) / MB, note: "after the rounds before it" };
}

/** Resident memory of the node with readers that follow quiet commands, over that without. */
async function attached(node: TestNode, note: (line: string) => void): Promise<Measured> {
  const transport = new NodeTransport(node.url, { maxConnections: ATTACHED + 100 });
  using client = new Client({ url: node.url, token: node.token, transport });
  const sandboxes = await inParallel(ATTACHED_TO, 4, () => client.sandboxes.create({ base: BASE }));
  const commands = await inParallel(ATTACHED_TO, 4, async (index) => sandboxes[index]?.start(["sleep", "600"]));
  const beforeKiB = await settled(node.pid);
  const leave = new AbortController();
  const readers = Array.from({ length: ATTACHED }, async (_, index) => {
    const stream = commands[index % ATTACHED_TO]?.stdout({ signal: leave.signal });
    if (stream !== undefined) for await (const _ of stream) throw new Error("sleep wrote something");
  });
  const over = Promise.allSettled(readers);
  const afterKiB = await settled(node.pid);
  leave.abort();
  await over;
  await inParallel(ATTACHED_TO, 4, async (index) => sandboxes[index]?.remove());
  note(`${ATTACHED} readers: ${((afterKiB - beforeKiB) / ATTACHED).toFixed(1)} KiB each`);
  return { name: "stream.idle_mb", value: ((afterKiB - beforeKiB) * 1024) / MB, note: `${ATTACHED} attached readers` };
}

/** Resident KiB once it stands still: two equal medians, a second apart. */
async function settled(pid: number): Promise<number> {
  const readings: number[] = [];
  for (let reading = 0; reading < 9; reading++) {
    await sleep(500);
    readings.push(residentKiB(pid));
  }
  return median(readings.slice(4));
}
