import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startNode, type TestNode } from "../../support/node.ts";
import { HEAVY } from "../heavy-programs.ts";
import { judgeAll } from "../judge.ts";
import { NATIVE, NODE, PYTHON, SHELL } from "../programs.ts";

const ROUNDS = 10;

let node: TestNode;
before(async () => {
  node = await startNode();
});
after(() => node[Symbol.asyncDispose]());

test("a base that is missing is made once, however many ask for it", async () => {
  const lines: string[] = [];
  const prepare = () => node.client.functions.prepare("python", { onProgress: (line) => lines.push(line) });
  const prepared = await Promise.all([prepare(), prepare(), prepare()]);
  assert.deepEqual(
    prepared.map(({ ready }) => ready),
    [true, true, true],
  );
  assert.ok(lines.length > 0);
  const bases = (await node.client.artifacts.list()).filter(({ name }) => name === "functions-python");
  assert.equal(bases.length, 1);
});

test("every program gets the same verdict in each of ten shuffled rounds at full concurrency", async () => {
  await Promise.all(["c", "node", "go", "java", "rust"].map((runtime) => node.client.functions.prepare(runtime)));
  await judgeAll(node.client, [...PYTHON, ...SHELL, ...NATIVE, ...NODE, ...HEAVY], ROUNDS);
});
