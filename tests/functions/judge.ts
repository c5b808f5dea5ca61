import assert from "node:assert/strict";
import type { Client, FunctionReply } from "#sdk";
import type { Program } from "./programs.ts";

/** More than run at once on a small node: some wait, and all of it is busy. */
const WIDTH = 16;
const CALL_MS = 600_000;

/** Runs all programs in an order of their own for each round, as many at once as there is room for, and asserts each verdict. */
export async function judgeAll(client: Client, programs: readonly Program[], rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const left = shuffled(programs, round + 1);
    const wrong: string[] = [];
    const work = async () => {
      for (let next = left.pop(); next !== undefined; next = left.pop()) wrong.push(...(await judgeOne(client, next)));
    };
    await Promise.all(Array.from({ length: WIDTH }, work));
    assert.deepEqual(wrong, [], `round ${round + 1} of ${rounds}`);
  }
}

async function judgeOne(client: Client, { name, call, status, stdout }: Program): Promise<readonly string[]> {
  const reply = await client.functions.invoke(call, { timeoutMs: CALL_MS });
  if (reply.status === status && (stdout === undefined || reply.run?.stdout === stdout)) return [];
  return [`${name}: ${said(reply)}, not ${status} ${JSON.stringify(stdout?.slice(0, 80))}`];
}

function said({ status, message, run, compile }: FunctionReply): string {
  const { stdout, stderr, cpuMs, wallMs, signal, exitCode } = run ?? compile ?? {};
  const texts = [stdout, stderr].map((text) => JSON.stringify(text)?.slice(0, 300));
  return JSON.stringify({ status, message, exitCode, signal, cpuMs, wallMs, texts });
}

/** The same order for the same seed. */
function shuffled<T>(items: readonly T[], seed: number): T[] {
  let state = seed;
  const random = () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
  return items
    .map((item) => ({ item, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item);
}
