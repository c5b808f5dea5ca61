import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyDisks } from "#backends/microvm/disks.ts";
import { connectMachine } from "#guest/protocol/machine.ts";
import { guestImage } from "#host/vmm/guest/image.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { MACHINE_PORTS } from "#host/vmm/vmm.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, output, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { privateKiB } from "./memory.ts";
import { measureSharedLayer, sharedLayerRatio } from "./shared-layer.ts";
import { describeMs, median, timeMs } from "./stats.ts";

const BUILD = join(import.meta.dirname, "../.build");
const GUEST_DIR = join(BUILD, "guest");
const ACCELERATOR = "tcg";
/** In turn, so that a busy moment of the machine meets each of them. */
const ROUNDS = 9;
const COLD_ROUNDS = 3;
const IDLE = 10;
const FORKS = 20;
const FORK_ROUNDS = 3;
/** Its machine has 256 MiB. */
const MEMORY_MIB = 160;
const MACHINE_MIB = 256;
/** 60 MB of its own memory, and as much that its kernel keeps of a file. */
const USE = "head -c 60000000 /dev/urandom >/dev/shm/used && cp /dev/shm/used /tmp/used && sync";
const NOTE = `accelerator ${ACCELERATOR}`;

/** Clones, pauses, memory and layers of microVMs in software, beside cold boots of the same kernel. */
export async function* measureMicrovm(note: (line: string) => void): AsyncGenerator<Measured> {
  const words = [`--accelerator=${ACCELERATOR}`, `--guest-dir=${GUEST_DIR}`];
  await using node = await startNodeWithBase({ runInMemory: true, words });
  // The first boots a template, the second makes one of the environment.
  for (let warming = 0; warming < 2; warming++) await (await create(node)).remove();
  yield* clones(node, note);
  yield* pauses(node, note);
  yield* memory(node, note);
  yield* forks(node, note);
  yield* sharedLayer(node, note);
}

function create(node: TestNode): Promise<Sandbox> {
  return node.client.sandboxes.create({ base: BASE, backend: "microvm", resources: { memoryMiB: MEMORY_MIB } });
}

async function* clones(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const times = { clone: [] as number[], cold: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    const made = await create(node);
    times.clone.push(performance.now() - start);
    await made.remove();
    if (round % (ROUNDS / COLD_ROUNDS) === 0) times.cold.push(await timeMs(bootCold));
  }
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  const [clone, cold] = [median(times.clone), median(times.cold)];
  yield { name: "microvm.clone_p50", value: clone, peers: { "cold boot": cold }, note: NOTE };
  yield { name: "microvm.clone_vs_cold", value: cold / clone, note: NOTE };
}

/** From nothing to an answer of the guest's first process: a sandbox would come on top. */
async function bootCold(): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "dsec-cold-"));
  try {
    const programs = {
      agent: join(BUILD, "dsec-agent"),
      cradle: join(BUILD, "dsec-cradle"),
      shell: "/bin/bash-static",
    };
    const [vmm, { kernel, initramfs }] = [await openQemu(), await guestImage(GUEST_DIR, programs)];
    const place = { dir: join(dir, "machine"), uid: 0x0800_0000, cgroups: [] };
    mkdirSync(place.dir);
    const parts = {
      accelerator: ACCELERATOR,
      processors: 1,
      memory: { sizeMiB: MACHINE_MIB },
      kernel,
      initramfs,
      lender: undefined,
    } as const;
    const signal = AbortSignal.timeout(120_000);
    const machine = await vmm.start({ ...parts, disks: emptyDisks(8), regions: [], devices: undefined }, place, signal);
    try {
      await machine.run();
      (await connectMachine(join(place.dir, MACHINE_PORTS.control), signal)).close();
    } finally {
      await machine.end();
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
}

async function* pauses(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const idle = await pauseTwice(node, "true");
  const used = await pauseTwice(node, USE);
  for (const [name, values] of Object.entries(idle)) note(`${name}: ${describeMs(values)}`);
  for (const [name, values] of Object.entries(used))
    note(`${name} of a guest that has used its memory: ${describeMs(values)}`);
  const peers = { second: median(idle.second), used: median(used.first), used_second: median(used.second) };
  yield { name: "microvm.pause", value: median(idle.first), peers, note: NOTE };
  yield { name: "microvm.resume", value: median(idle.resume), note: NOTE };
}

async function pauseTwice(node: TestNode, line: string) {
  const times = { first: [] as number[], second: [] as number[], resume: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    await using sandbox = await create(node);
    await output(sandbox, line);
    times.first.push(await timeMs(() => sandbox.pause()));
    times.resume.push(await timeMs(() => output(sandbox, "true")));
    times.second.push(await timeMs(() => sandbox.pause()));
  }
  return times;
}

async function* memory(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const made = await Promise.all(Array.from({ length: IDLE }, () => create(node)));
  const kiB = made.map(({ id }) => privateKiB(monitorOf(node, id)));
  note(`private memory of ${IDLE} idle clones: ${kiB.map((value) => Math.round(value / 1024)).join(", ")} MiB`);
  yield { name: "microvm.private_mb", value: median(kiB) / 1024, note: NOTE };
  await Promise.all(made.map((sandbox) => sandbox.remove()));
}

/** Each goes on with the same process; all have answered when the time ends. */
async function* forks(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const times: number[] = [];
  const kiB: number[] = [];
  const frozen: number[] = [];
  for (let round = 0; round < FORK_ROUNDS; round++) {
    await using parent = await create(node);
    const command = await parent.start("exec sleep 1000");
    const children: Sandbox[] = [];
    const fork = async () => {
      const { frozenMs, forks: made } = await parent.fork({ count: FORKS });
      frozen.push(frozenMs);
      for (const one of made) if ("sandbox" in one) children.push(one.sandbox);
      await Promise.all(children.map((child) => output(child, `kill -0 ${command.pid}`)));
    };
    times.push(await timeMs(fork));
    if (children.length < FORKS) throw new Error(`${children.length} of ${FORKS} forks came up`);
    kiB.push(...children.map(({ id }) => privateKiB(monitorOf(node, id))));
    await Promise.all(children.map((child) => child.remove()));
  }
  note(`forks of ${FORKS}: ${describeMs(times)}; parent held: ${describeMs(frozen)}`);
  note(
    `private memory of forks: ${Math.round(median(kiB) / 1024)} MiB, at most ${Math.round(Math.max(...kiB) / 1024)} MiB`,
  );
  yield { name: "microvm.fork20", value: median(times) / 1000, note: NOTE };
}

async function* sharedLayer(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const memory = await measureSharedLayer(node);
  for (const [name, { cachedMiB, ownMiB }] of Object.entries(memory))
    note(`a layer read by ${name}: ${Math.round(cachedMiB)} MiB of files, ${Math.round(ownMiB)} MiB of monitors`);
  yield { name: "microvm.shared_layer", value: sharedLayerRatio(memory), note: NOTE };
}

function monitorOf(node: TestNode, id: string): number {
  const record = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
  return record.pid;
}
