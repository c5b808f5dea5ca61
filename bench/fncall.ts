import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Client, InvokeFunction } from "#sdk";
import { startNode, type TestNode } from "#tests/support/node.ts";
import type { Measured } from "./measured.ts";
import { describeMs, inParallel, median, timeMs } from "./stats.ts";

const exec = promisify(execFile);

const ROUNDS = 8;
const PER_ROUND = { ours: 25, container: 3, compiled: 10, runc: 2 };
const WIDTH = 8;
const CALLS = 2_000;
const PYTHON: InvokeFunction = { runtime: "python", code: "print(sum(map(int, input().split())))", stdin: "1 2 3\n" };
const BASH: InvokeFunction = { runtime: "bash", code: "read a b; echo $((a + b))", stdin: "1 2\n" };
const C_SOURCE = '#include <stdio.h>\nint main(void) { puts("c"); return 0; }\n';
const COMPILED: InvokeFunction = { runtime: "c", code: C_SOURCE };

type Note = (line: string) => void;

/** Functions through SDK and apiserver: delay and rate, beside a container for each call and a cold `runc run` that compiles. */
export async function* measureFncall(note: Note): AsyncGenerator<Measured> {
  await using node = await startNode({ runInMemory: true });
  for (const runtime of ["python", "c"]) {
    await node.client.functions.prepare(runtime, { onProgress: (line) => note(`${runtime}: ${line}`) });
  }
  yield* compare(node, note);
  yield { name: "fncall.python_rate", value: await rate(node.client, PYTHON), note: `${WIDTH} at a time` };
  yield { name: "fncall.bash_rate", value: await rate(node.client, BASH), note: `${WIDTH} at a time` };
  yield {
    name: "fncall.worker_mb",
    value: workerBytes(node) / 1e6,
    note: "fork server and cells of a pool, by what they share, over its idle cells",
  };
}

async function* compare({ client, runDir }: TestNode, note: Note): AsyncGenerator<Measured> {
  const times = { ours: [] as number[], container: [] as number[], compiled: [] as number[], runc: [] as number[] };
  for (const call of [PYTHON, COMPILED]) await repeat(5, () => invoke(client, call));
  using runc = new RuncCompiles(runDir);
  for (let round = 0; round < ROUNDS; round++) {
    times.ours.push(...(await repeat(PER_ROUND.ours, () => invoke(client, PYTHON))));
    times.container.push(...(await repeat(PER_ROUND.container, () => inContainer(client))));
    times.compiled.push(...(await repeat(PER_ROUND.compiled, () => invoke(client, COMPILED))));
    times.runc.push(...(await repeat(PER_ROUND.runc, () => runc.run())));
  }
  for (const [name, values] of Object.entries(times)) note(`${name}: ${describeMs(values)}`);
  const ours = median(times.ours);
  const container = median(times.container);
  yield { name: "fncall.python_p50", value: ours, peers: { container } };
  yield { name: "fncall.vs_container", value: container / ours, peers: { container } };
  const runcMs = median(times.runc);
  const compiled = median(times.compiled);
  yield {
    name: "fncall.c_vs_runc",
    value: runcMs / compiled,
    peers: { runc: runcMs },
    note: `ours ${compiled.toFixed(2)} ms, compiled before`,
  };
}

async function invoke(client: Client, call: InvokeFunction): Promise<void> {
  const { status, message } = await client.functions.invoke(call);
  if (status !== "ok") throw new Error(`a call ended with ${status}: ${message}`);
}

/** The same program in a sandbox of its own. */
async function inContainer(client: Client): Promise<void> {
  await using sandbox = await client.sandboxes.create({ base: "functions-python" });
  await sandbox.run(["python3", "-c", String(PYTHON.code)], { stdin: String(PYTHON.stdin) });
}

async function rate(client: Client, call: InvokeFunction): Promise<number> {
  await inParallel(4 * WIDTH, WIDTH, () => invoke(client, call));
  const tookMs = await timeMs(() => inParallel(CALLS, WIDTH, () => invoke(client, call)));
  return (CALLS / tookMs) * 1_000;
}

async function repeat(count: number, work: () => Promise<void>): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < count; index++) times.push(await timeMs(work));
  return times;
}

/** What the pool of the fork server takes, each page divided by those who share it, over the forks that wait in it. */
function workerBytes({ marks: { edge } }: TestNode): number {
  const pools = new Map<string, { bytes: number; workers: number; serves: boolean }>();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const pool = new RegExp(`/dsec/${edge}/(s[^/\n]+)`).exec(readOr(`/proc/${pid}/cgroup`))?.[1];
    if (pool === undefined) continue;
    const entry = pools.get(pool) ?? { bytes: 0, workers: 0, serves: false };
    const pss = /^Pss:\s+(\d+) kB/m.exec(readOr(`/proc/${pid}/smaps_rollup`))?.[1];
    entry.bytes += Number(pss ?? 0) * 1024;
    entry.serves ||= readOr(`/proc/${pid}/cmdline`).includes("fork-server");
    entry.workers += readOr(`/proc/${pid}/comm`).trim() === "dsec-keeper" ? 1 : 0;
    pools.set(pool, entry);
  }
  const pool = [...pools.values()].find(({ serves }) => serves);
  if (pool === undefined) throw new Error("no pool has a fork server");
  return pool.bytes / pool.workers;
}

function readOr(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** `runc run` of the compiler and what it made, in the same base. */
class RuncCompiles implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "dsec-runc-"));

  constructor(runDir: string) {
    execFileSync("runc", ["spec", "--bundle", this.#folder]);
    const file = join(this.#folder, "config.json");
    const config = JSON.parse(readFileSync(file, "utf8"));
    const line = `printf '%s' "$SOURCE" > /tmp/main.c && gcc -O2 -std=gnu17 -o /tmp/main /tmp/main.c -lm && /tmp/main`;
    const env = [...config.process.env, `SOURCE=${C_SOURCE}`];
    const scratch = { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["nosuid", "mode=1777"] };
    writeFileSync(
      file,
      JSON.stringify({
        ...config,
        root: { path: baseWith(runDir, "usr/bin/gcc"), readonly: true },
        mounts: [...config.mounts, scratch],
        process: { ...config.process, args: ["sh", "-c", line], env, terminal: false },
      }),
    );
  }

  async run(): Promise<void> {
    const id = `bench-${randomBytes(6).toString("hex")}`;
    await exec("runc", [
      "--root",
      join(this.#folder, "state"),
      "run",
      "--no-new-keyring",
      "--bundle",
      this.#folder,
      id,
    ]);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** Where the node has mounted the layer that holds the file. */
function baseWith(runDir: string, file: string): string {
  const mounts = readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "");
  const base = mounts.find((path) => path.startsWith(`${runDir}/`) && existsSync(join(path, file)));
  if (base === undefined) throw new Error(`no mounted layer has ${file}`);
  return base;
}
