import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { findProcesses } from "#tests/support/marks.ts";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { type MemoryReading, privateKiB, readMemory, residentKiB } from "./memory.ts";
import { inParallel, median } from "./stats.ts";

const SANDBOXES = 1_000;
const WIDTH = 8;
const WORDS = ["--memory-overcommit=1000", "--cpu-overcommit=1000"];
/** The kernel frees some memory late; other programs come and go: several readings, their median. */
const READINGS = 9;
const READ_EVERY_MS = 500;
/** The agent and its spawner: one program, two processes a sandbox. */
const AGENT = /^dsec-(agent|spawner)$/;

/** Memory of a thousand idle sandboxes: what the machine has less of, and what the agents have for themselves. */
export async function* measureIdle(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ words: WORDS, runInMemory: true });
  await warmUp(node);
  const before = await readSteady(node);
  await inParallel(SANDBOXES, WIDTH, () => node.client.sandboxes.create({ base: BASE }));
  const after = await readSteady(node);
  const agentsKiB = agentPrivateKiB(node);
  const lostKiB = before.availableKiB - after.availableKiB;
  const parts = {
    ...growth(before.kernelKiB, after.kernelKiB),
    node: after.nodeKiB - before.nodeKiB,
    agents: agentsKiB,
  };
  const partsKiB = Object.values(parts).reduce((sum, size) => sum + size, 0);
  const perSandbox = Object.entries(parts).map(([name, size]) => `${name} ${(size / SANDBOXES).toFixed(0)}`);
  note(`KiB a sandbox: available ${(lostKiB / SANDBOXES).toFixed(0)}; parts: ${perSandbox.join(", ")}`);
  // Whichever says more: available memory may be given back by others meanwhile, parts may miss a kind.
  const value = (Math.max(lostKiB, partsKiB) * 1_024) / SANDBOXES / 1e6;
  yield { name: "idle.sandbox_mb", value, note: `KiB: ${perSandbox.join(", ")}` };
  yield { name: "idle.agent_kib", value: agentsKiB / SANDBOXES };
}

interface NodeReading extends MemoryReading {
  readonly nodeKiB: number;
}

/** Pools, caches and the compiled code of a first create are the node's, not a sandbox's. */
async function warmUp(node: TestNode): Promise<void> {
  const sandboxes = await inParallel(50, WIDTH, () => node.client.sandboxes.create({ base: BASE }));
  await inParallel(sandboxes.length, WIDTH, async (index) => sandboxes[index]?.remove());
}

async function readSteady(node: TestNode): Promise<NodeReading> {
  const readings: NodeReading[] = [];
  while (readings.length < READINGS) {
    await sleep(READ_EVERY_MS);
    readings.push({ ...readMemory(), nodeKiB: residentKiB(node.pid) });
  }
  const middle = median(readings.map(({ availableKiB }) => availableKiB));
  const typical = readings.find(({ availableKiB }) => availableKiB === middle);
  if (typical === undefined) throw new Error("no reading");
  return typical;
}

function growth(before: MemoryReading["kernelKiB"], after: MemoryReading["kernelKiB"]): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after).map(([kind, size]) => [kind, size - before[kind as keyof typeof before]]),
  );
}

function agentPrivateKiB(node: TestNode): number {
  const agents = findProcesses(node.marks).filter((pid) => AGENT.test(commandName(pid)));
  if (agents.length < SANDBOXES) throw new Error(`${agents.length} agents for ${SANDBOXES} sandboxes`);
  return agents.reduce((sum, pid) => sum + privateKiB(pid), 0);
}

function commandName(pid: number): string {
  return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
}
