import assert from "node:assert/strict";
import { test } from "node:test";
import { type Compilation, CompileCache } from "./compiled.ts";

const RUN = {
  exitCode: 0,
  signal: undefined,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  outputCut: false,
  wallMs: 1,
  cpuMs: 1,
  peakMemoryBytes: 1,
};
const made = (size: number, lasting = true): Compilation => ({
  run: RUN,
  outputs: [{ name: "main", mode: 0o755, bytes: new Uint8Array(size) }],
  accepted: true,
  lasting,
  status: "ok",
});

test("the same is compiled once, however many ask at the same time", async () => {
  const cache = new CompileCache(1_000_000);
  let count = 0;
  const compile = async () => {
    count += 1;
    await Promise.resolve();
    return made(1);
  };
  const all = await Promise.all(Array.from({ length: 5 }, () => cache.get("key", compile)));
  assert.deepEqual([count, all.filter(({ cached }) => cached).length], [1, 4]);
  assert.equal((await cache.get("key", compile)).cached, true);
});

test("what time or memory decided is not kept", async () => {
  const cache = new CompileCache(1_000_000);
  await cache.get("key", async () => made(1, false));
  assert.equal((await cache.get("key", async () => made(1))).cached, false);
});

test("a compilation that rejects is nobody's", async () => {
  const cache = new CompileCache(1_000_000);
  await assert.rejects(
    cache.get("key", async () => {
      throw new Error("lost");
    }),
    /lost/,
  );
  assert.equal((await cache.get("key", async () => made(1))).cached, false);
});

test("the least used goes first when there is no more room", async () => {
  const cache = new CompileCache(8_000);
  for (const key of ["a", "b"]) await cache.get(key, async () => made(2_000));
  await cache.get("a", async () => made(2_000));
  await cache.get("c", async () => made(2_000));
  assert.equal((await cache.get("a", async () => made(1))).cached, true);
  assert.equal((await cache.get("b", async () => made(2_000))).cached, false);
});
