import type { Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, output, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { residentKiB } from "./memory.ts";
import { RuncCopies } from "./runc-copies.ts";
import { median, timeMs } from "./stats.ts";

const MEBIBYTE = 2 ** 20;
/** Bytes of a timed transfer: long enough that starting it does not count, short enough to stay in the page cache. */
const SIZE_MIB = 512;
const ROUNDS = 5;
/** Bytes that pass while memory is watched, each way. */
const LONG_MIB = 2_048;
const WATCH_EVERY_MS = 50;
const FILE = "/root/file";

/** Whole files through SDK, apiserver, edge and agent, digests checked on both sides, beside a container's pipe and a copy. */
export async function* measureFiles(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ runInMemory: true });
  await using sandbox = await node.client.sandboxes.create({ base: BASE });
  using runc = new RuncCopies();
  const rates: Record<string, number[]> = { up: [], down: [], copy: [], runcUp: [], runcDown: [] };
  const take = (name: string, ms: number) => rates[name]?.push((SIZE_MIB * MEBIBYTE) / 1e3 / ms);
  await up(sandbox, SIZE_MIB);
  for (let round = 0; round < ROUNDS; round++) {
    take("up", await timeMs(() => up(sandbox, SIZE_MIB)));
    take("runcUp", await timeMs(() => runc.up(SIZE_MIB)));
    take("down", await timeMs(() => down(sandbox, SIZE_MIB)));
    take("runcDown", await timeMs(() => runc.down()));
    take("copy", await timeMs(() => output(sandbox, `cat ${FILE} >${FILE}.copy`)));
    note(
      Object.entries(rates)
        .map(([name, values]) => `${name} ${values.at(-1)?.toFixed(0)}`)
        .join(", "),
    );
  }
  const middle = (name: string) => median(rates[name] ?? []);
  const floor = middle("copy");
  yield { name: "files.up", value: middle("up"), peers: { runc: middle("runcUp") }, floor };
  yield { name: "files.down", value: middle("down"), peers: { runc: middle("runcDown") }, floor };
  const growth = [
    await growthMB(node, () => up(sandbox, LONG_MIB)),
    await growthMB(node, () => down(sandbox, LONG_MIB)),
  ];
  note(
    `node memory: ${growth.map((value) => value.toFixed(0)).join(" and ")} MB more while ${LONG_MIB} MiB go up and down`,
  );
  yield { name: "files.growth", value: Math.max(...growth) };
}

async function up(sandbox: Sandbox, sizeMiB: number): Promise<void> {
  const { size } = await sandbox.files.write(FILE, zeros(sizeMiB));
  if (size !== sizeMiB * MEBIBYTE) throw new Error(`${size} bytes arrived`);
}

async function down(sandbox: Sandbox, sizeMiB: number): Promise<void> {
  let size = 0;
  for await (const chunk of sandbox.files.stream(FILE)) size += chunk.byteLength;
  if (size !== sizeMiB * MEBIBYTE) throw new Error(`${size} bytes came back`);
}

/** One piece again and again: what is measured is the way, not the source. */
async function* zeros(sizeMiB: number): AsyncGenerator<Uint8Array> {
  const piece = new Uint8Array(MEBIBYTE);
  for (let count = 0; count < sizeMiB; count++) yield piece;
}

/** The most that the node had in memory during `work`, over what it had before. */
async function growthMB(node: TestNode, work: () => Promise<void>): Promise<number> {
  const before = residentKiB(node.pid);
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, residentKiB(node.pid));
  }, WATCH_EVERY_MS);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return ((most - before) * 1_024) / 1e6;
}
