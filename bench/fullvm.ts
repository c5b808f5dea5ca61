import { readFileSync } from "node:fs";
import type { Sandbox } from "#sdk";
import { createComputer, memtestShows } from "#tests/fullvm/screen.ts";
import { createSystem, startNodeWithSystem } from "#tests/fullvm/system.ts";
import type { TestNode } from "#tests/support/node.ts";
import { output } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { describeMs, median, timeMs } from "./stats.ts";

const ROUNDS = 40;
const STARTS = 6;
const PAUSE_ROUNDS = 9;
const FORKS = 4;
const FORK_ROUNDS = 5;
const MEMORY_MIB = 256;
/** 60 MB of its memory. */
const USE = "mkdir -p /tmp/used && mount -t tmpfs none /tmp/used && head -c 60000000 /dev/urandom >/tmp/used/file";

/**
 * Full virtual machines in software, which every host can: a screenshot of memtest86+ at work, and a create; pauses and forks of a system of busybox with 256 MiB.
 */
export async function* measureFullvm(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithSystem({ runInMemory: true });
  const sandbox = await createComputer(node);
  await memtestShows(sandbox);
  yield await screenshots(sandbox, note);
  const starts: number[] = [];
  for (let round = 0; round < STARTS; round++) {
    starts.push(await timeMs(async () => void (await createComputer(node)).id));
    for await (const { id } of node.client.sandboxes.list())
      if (id !== sandbox.id) await node.client.sandboxes.remove(id);
  }
  note(`create, until the computer is on: ${describeMs(starts)}`);
  // It would take its part of the processors from what follows.
  await sandbox.remove();
  const startedMs = performance.now();
  const system = await createSystem(node, { resources: { memoryMiB: MEMORY_MIB } });
  const bootMs = performance.now() - startedMs;
  note(`create of a system of busybox, until its agent answers: ${bootMs.toFixed(0)} ms, load ${load()}`);
  await pauses(system, note);
  await forks(node, system, note);
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
  const what = `${screen.width} x ${screen.height}, ${bytes} bytes, ${accelerator}, load ${load()}`;
  note(`screenshot of ${what}: ${describeMs(times)}`);
  return { name: "fullvm.screenshot", value: median(times), note: what };
}

async function pauses(system: Sandbox, note: (line: string) => void): Promise<void> {
  for (const [what, line] of [
    ["idles", "true"],
    ["writes 60 MB before each", USE],
  ] as const) {
    const times = { pause: [] as number[], resume: [] as number[] };
    for (let round = 0; round < PAUSE_ROUNDS; round++) {
      await output(system, line);
      times.pause.push(await timeMs(() => system.pause()));
      times.resume.push(await timeMs(() => output(system, "true")));
      await system.run("umount /tmp/used");
    }
    const [first = 0, ...later] = times.pause;
    note(`pause of a system that ${what}: first ${first.toFixed(0)} ms, then ${describeMs(later)}`);
    note(`resume of it, until a command has ended: ${describeMs(times.resume)}, load ${load()}`);
  }
}

/** Each goes on with the same process; all have answered when the time ends. */
async function forks(node: TestNode, system: Sandbox, note: (line: string) => void): Promise<void> {
  const times = { live: [] as number[], snapshot: [] as number[], saved: [] as number[], held: [] as number[] };
  const command = await system.start("exec sleep 100000");
  const fork = async (of: Sandbox) => {
    const { frozenMs, forks: made } = await of.fork({ count: FORKS });
    const children = made.flatMap((one) => ("sandbox" in one ? [one.sandbox] : []));
    if (children.length < FORKS) throw new Error(`${children.length} of ${FORKS} forks came up`);
    await Promise.all(children.map((child) => output(child, `kill -0 ${command.pid}`)));
    return { frozenMs, children };
  };
  for (let round = 0; round < FORK_ROUNDS; round++) {
    let made = { frozenMs: 0, children: [] as Sandbox[] };
    times.live.push(
      await timeMs(async () => {
        made = await fork(system);
      }),
    );
    times.held.push(made.frozenMs);
    await Promise.all(made.children.map((child) => child.remove()));
    let kept: string | undefined;
    times.snapshot.push(
      await timeMs(async () => {
        const [one] = (await system.fork({ count: 1, paused: true })).forks;
        kept = one !== undefined && "sandbox" in one ? one.sandbox.id : undefined;
      }),
    );
    if (kept === undefined) throw new Error("a snapshot failed");
    const snapshot = node.client.sandboxes.use(kept);
    times.saved.push(
      await timeMs(async () => {
        made = await fork(snapshot);
      }),
    );
    await Promise.all([snapshot, ...made.children].map((one) => one.remove()));
  }
  note(
    `forks of ${FORKS} until all have answered: ${describeMs(times.live)}; it is held for ${describeMs(times.held)}`,
  );
  note(`a snapshot with memory: ${describeMs(times.snapshot)}; forks of ${FORKS} of it: ${describeMs(times.saved)}`);
  note(`load ${load()} at the end`);
}

function load(): string {
  return readFileSync("/proc/loadavg", "utf8").split(" ")[0] ?? "";
}
