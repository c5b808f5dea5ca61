import type { Sandbox } from "#sdk";
import { BASE, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./main.ts";
import { describeMs, median } from "./stats.ts";

const WARM_UP = 50;
const SAMPLES = 1_000;

/** A short command through SDK, apiserver, edge and agent, one after the other. */
export async function* measureCommand(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ runInMemory: true });
  await using sandbox = await node.client.sandboxes.create({ base: BASE });
  await run(sandbox, WARM_UP);
  const times = await run(sandbox, SAMPLES);
  note(describeMs(times));
  yield { name: "command.p50", value: median(times) };
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
