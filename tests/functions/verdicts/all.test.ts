import { test } from "node:test";
import { startNode } from "../../support/node.ts";
import { HEAVY } from "../heavy-programs.ts";
import { judgeAll } from "../judge.ts";
import { NATIVE, NODE, PYTHON, SHELL } from "../programs.ts";

const ROUNDS = 10;

test("every program gets the same verdict in each of ten shuffled rounds at full concurrency", async () => {
  await using node = await startNode();
  await Promise.all(
    ["python", "c", "node", "go", "java", "rust"].map((runtime) => node.client.functions.prepare(runtime)),
  );
  await judgeAll(node.client, [...PYTHON, ...SHELL, ...NATIVE, ...NODE, ...HEAVY], ROUNDS);
});
