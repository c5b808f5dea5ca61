import { readFileSync } from "node:fs";
import type { Sandbox } from "#sdk";
import { createComputer, memtestShows, startNodeWithMemtest } from "#tests/fullvm/screen.ts";
import type { Measured } from "./measured.ts";
import { describeMs, median, timeMs } from "./stats.ts";

const ROUNDS = 40;
const STARTS = 6;

/** Full virtual machines in software, which every host can: a screenshot of memtest86+ at work, and a create. */
export async function* measureFullvm(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithMemtest({ runInMemory: true });
  await using sandbox = await createComputer(node);
  await memtestShows(sandbox);
  yield await screenshots(sandbox, note);
  const starts: number[] = [];
  for (let round = 0; round < STARTS; round++) {
    starts.push(await timeMs(async () => void (await createComputer(node)).id));
    for await (const { id } of node.client.sandboxes.list())
      if (id !== sandbox.id) await node.client.sandboxes.remove(id);
  }
  note(`create, until the computer is on: ${describeMs(starts)}`);
}

async function screenshots(sandbox: Sandbox, note: (line: string) => void): Promise<Measured> {
  const { accelerator, screen } = await sandbox.computer.info();
  const times: number[] = [];
  let bytes = 0;
  for (let round = 0; round < ROUNDS; round++) {
    times.push(
      await timeMs(async () => {
        bytes = (await sandbox.computer.screenshot()).png.length;
      }),
    );
  }
  const what = `${screen.width} x ${screen.height}, ${bytes} bytes, ${accelerator}, load ${readFileSync("/proc/loadavg", "utf8").split(" ")[0]}`;
  note(`screenshot of ${what}: ${describeMs(times)}`);
  return { name: "fullvm.screenshot", value: median(times), note: what };
}
