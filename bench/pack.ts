import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "#sdk";
import type { TestNode } from "#tests/support/node.ts";
import { BASE, output, startNodeWithBase } from "#tests/support/sandbox.ts";
import type { Measured } from "./measured.ts";
import { describeMs, median, timeMs } from "./stats.ts";

/** In turn, so that a busy moment of the machine meets each of them. */
const ROUNDS = 12;
const FORKS = 16;
const FORK_ROUNDS = 4;
/** 10 MB in 1,000 files that differ. */
const TREE =
  "mkdir /data && cd /data && for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; for f in $(seq 100); do head -c 10000 /dev/urandom >$d/$f; done; done";

/** Packs, restores and forks of a sandbox that wrote 10 MB in 1,000 files, beside tar and cp of its upper. */
export async function* measurePack(note: (line: string) => void): AsyncGenerator<Measured> {
  await using node = await startNodeWithBase({ runInMemory: true });
  await using sandbox = await node.client.sandboxes.create({ base: BASE });
  await output(sandbox, TREE);
  yield* packs(node, sandbox, note);
  yield* restores(node, note);
  yield* forks(node, sandbox, note);
}

async function* packs(node: TestNode, sandbox: Sandbox, note: (line: string) => void): AsyncGenerator<Measured> {
  const times = { pack: [] as number[], frozen: [] as number[], tar: [] as number[] };
  const upper = join(node.runDir, "volume", sandbox.id, "upper");
  for (let round = 0; round < ROUNDS; round++) {
    // Other bytes each time: what the store has already is not written again.
    await output(sandbox, "for d in /data/*; do for f in $d/*; do head -c 10 /dev/urandom >>$f; done; done");
    const start = performance.now();
    const { frozenMs } = await sandbox.packDiff({ name: "packed" });
    times.pack.push(performance.now() - start);
    times.frozen.push(frozenMs);
    const tar = async () => execFileSync("tar", ["-C", upper, "-cf", join(node.dataDir, "peer.tar"), "."]);
    times.tar.push(await timeMs(tar));
  }
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  yield { name: "pack.diff", value: median(times.pack), peers: { tar: median(times.tar) } };
  yield { name: "pack.frozen", value: median(times.frozen) };
}

async function* restores(node: TestNode, note: (line: string) => void): AsyncGenerator<Measured> {
  const times = { plain: [] as number[], restored: [] as number[] };
  const { sandboxes } = node.client;
  for (let round = 0; round < 2 * ROUNDS; round++) {
    for (const [kind, base] of [["plain", BASE] as const, ["restored", "packed"] as const]) {
      const start = performance.now();
      const made = await sandboxes.create({ base });
      times[kind].push(performance.now() - start);
      await made.remove();
    }
  }
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  yield { name: "pack.restore_over_create", value: median(times.restored) - median(times.plain) };
}

async function* forks(node: TestNode, sandbox: Sandbox, note: (line: string) => void): AsyncGenerator<Measured> {
  const times = { fork: [] as number[], copy: [] as number[] };
  const upper = join(node.runDir, "volume", sandbox.id, "upper");
  for (let round = 0; round < FORK_ROUNDS; round++) {
    const start = performance.now();
    const { forks } = await sandbox.fork({ count: FORKS });
    times.fork.push((performance.now() - start) / FORKS);
    for (const made of forks) if ("sandbox" in made) await made.sandbox.remove();
    const copies = join(node.dataDir, `copies-${round}`);
    mkdirSync(copies);
    const copy = async () => execFileSync("cp", ["-a", upper, join(copies, "one")]);
    times.copy.push(await timeMs(copy));
  }
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  yield { name: "pack.fork16_each", value: median(times.fork), peers: { "cp -a": median(times.copy) } };
}
