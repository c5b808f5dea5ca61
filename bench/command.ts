import type { Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { describeMs, inParallel, median, timeMs } from "./stats.ts";

const WARM_UP = 50;
const SAMPLES = 1_000;
const LANES = 32;
const RATE_WARM_UP = 20;
const RATE_ROUNDS = 5;
const RATE_EACH = 100;

/** A short command through SDK, apiserver, edge and agent, one after the other. */
export async function* measureCommand(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ runInMemory: true });
  await using sandbox = await node.client.sandboxes.create({ base: BASE });
  await run(sandbox, WARM_UP);
  const times = await run(sandbox, SAMPLES);
  note(describeMs(times));
  yield { name: "command.p50", value: median(times) };
  yield await sessionLines(sandbox);
  yield await rate(node);
}

/** A line that starts no program: what a session adds to the shell that people know. */
async function sessionLines(sandbox: Sandbox): Promise<Measured> {
  await using session = await sandbox.session();
  const times: number[] = [];
  for (let index = 0; index < WARM_UP + SAMPLES; index++) {
    const start = performance.now();
    const result = await session.run("true");
    if (index >= WARM_UP) times.push(performance.now() - start);
    if (!result.ok) throw new Error(`a line ended with ${JSON.stringify(result.status)}`);
  }
  return { name: "command.session_p50", value: median(times), note: describeMs(times) };
}

/** Short commands one after the other in each of many sandboxes at once: what a node carries, not what one caller sees. */
async function rate(node: TestNode): Promise<Measured> {
  const sandboxes = await inParallel(LANES, 8, () => node.client.sandboxes.create({ base: BASE }));
  await Promise.all(sandboxes.map((sandbox) => run(sandbox, RATE_WARM_UP)));
  const rounds: number[] = [];
  for (let round = 0; round < RATE_ROUNDS; round++) {
    const tookMs = await timeMs(() => Promise.all(sandboxes.map((sandbox) => run(sandbox, RATE_EACH))));
    rounds.push((LANES * RATE_EACH) / (tookMs / 1_000));
  }
  await Promise.all(sandboxes.map((sandbox) => sandbox.remove()));
  return {
    name: "command.rate",
    value: median(rounds),
    note: `rounds: ${rounds.map((each) => each.toFixed(0)).join(" ")}`,
  };
}

async function run(sandbox: Sandbox, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    const result = await sandbox.run(["/bin/true"]);
    times.push(performance.now() - start);
    if (!result.ok) throw new Error(`/bin/true ended with ${JSON.stringify(result.status)}`);
  }
  return times;
}
