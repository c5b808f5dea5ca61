import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import type { InvokeFunction, InvokeManyEvent } from "#api/index.ts";
import { Client } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { tokenOfNew } from "../support/projects.ts";
import { waitUntil } from "../support/wait.ts";
import { addRuntime, addShell } from "./support.ts";

const MIB = 1024 * 1024;
const CALLS = 12;
const RESULT_BYTES = 24 * MIB;
/** Without a bound the node would have all results twice, at both ends of its node API: 576 MiB, and what is not collected yet of both. */
const MOST_GROWTH_BYTES = 400 * MIB;
const STATE_MS = 120_000;

let node: TestNode;
before(async () => {
  // A project has 32 MiB of it: less than any of these calls may return, so that each is held alone.
  node = await startNode({ words: ["--function-results=128MiB"] });
  await addShell(node);
  await node.client.artifacts.tag("busybox", { target: "everybodys", shared: true });
  addRuntime(node, "beside", { base: "everybodys", source: "main.sh", run: ["sh", "main.sh"] });
});
after(() => node[Symbol.asyncDispose]());

/** Prints its number, over and over. */
const loud = (number: number): InvokeFunction => ({
  runtime: "sh",
  code: `yes ${wordOf(number)} | head -c ${RESULT_BYTES}`,
  limits: { outputBytes: 32 * MIB, memoryMiB: 32 },
});
const wordOf = (number: number) => String(1_000_000 + number);

async function post(path: string, body: unknown, more: http.OutgoingHttpHeaders = {}): Promise<http.IncomingMessage> {
  const headers = { authorization: `Bearer ${node.token}`, "content-type": "application/json", ...more };
  const request = http.request(new URL(path, node.url), { method: "POST", headers });
  request.end(JSON.stringify(body));
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  assert.equal(response.statusCode, 200);
  return response;
}

function residentBytes(): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${node.pid}/status`, "utf8"))?.[1]) * 1024;
}

function cpuTicks(): number {
  const fields = readFileSync(`/proc/${node.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

/** Waits until the node does no more than it does when nobody asks. Resolves with the most memory that it had on the way. */
async function untilAtRest(): Promise<number> {
  let most = residentBytes();
  let [quiet, before] = [0, cpuTicks()];
  await waitUntil("the node is at rest", STATE_MS, () => {
    const now = cpuTicks();
    quiet = now - before > 1 ? 0 : quiet + 1;
    before = now;
    most = Math.max(most, residentBytes());
    return quiet === 100;
  });
  return most;
}

test("a batch whose reader is slow holds few results, others go on, and all of it arrives whole", async () => {
  // Whatever it has of its first large result it has before, too.
  const warm = await post("/v1/functions/batch", { calls: [loud(0)] });
  for await (const _ of warm);
  const before = await untilAtRest();
  const response = await post("/v1/functions/batch", {
    calls: Array.from({ length: CALLS }, (_, index) => loud(index)),
    concurrency: CALLS,
  });
  // Where this test fails the next ones must not wait for what it held.
  using _left = { [Symbol.dispose]: () => response.destroy() };
  const most = await untilAtRest();
  assert.ok(most - before < MOST_GROWTH_BYTES, `grew by ${(most - before) / MIB} MiB`);
  const other = new Client({ url: node.url, token: await tokenOfNew(node, "others") });
  const beside = await other.functions.invoke({ runtime: "beside", code: "echo beside" });
  assert.equal(beside.run?.stdout, "beside\n");
  const seen = new Set<number>();
  for await (const line of createInterface({ input: response, crlfDelay: Number.POSITIVE_INFINITY })) {
    if (line === "") continue;
    const event = JSON.parse(line) as InvokeManyEvent;
    assert.ok("result" in event, line.slice(0, 200));
    const { status, run } = event.result;
    assert.equal(status, "ok");
    assert.ok(run?.stdout === `${wordOf(event.index)}\n`.repeat(RESULT_BYTES / 8));
    seen.add(event.index);
  }
  assert.equal(seen.size, CALLS);
});

test("a reader that leaves gives back what was held for it", async () => {
  for (let round = 0; round < 3; round += 1) {
    const response = await post("/v1/functions/batch", { calls: [loud(0), loud(1), loud(2)] });
    response.destroy();
  }
  const { run } = await node.client.functions.invoke(loud(3));
  assert.equal(String(run?.stdout).length, RESULT_BYTES);
});

test("a reader that takes nothing is let go at the call's time limit, with what was held for it", async () => {
  // More than the kernel would hold between the two.
  const calls = Array.from({ length: CALLS }, (_, index) => loud(index));
  const response = await post("/v1/functions/batch", { calls }, { "dsec-timeout-ms": 5000 });
  const { run } = await node.client.functions.invoke(loud(3));
  assert.equal(String(run?.stdout).length, RESULT_BYTES);
  await assert.rejects(async () => {
    for await (const _ of response);
  }, /aborted/);
});

test("a started call's long result and one of many tests come whole", async () => {
  const { functions } = node.client;
  const id = await functions.start(loud(5));
  assert.ok((await functions.result(id)).run?.stdout === `${wordOf(5)}\n`.repeat(RESULT_BYTES / 8));
  // The verdicts alone are longer than a piece of the node API.
  const tests = Array.from({ length: 800 }, (_, index) => ({ stdin: `${index}`, expected: `${index}` }));
  const reply = await functions.invoke({ runtime: "sh", command: ["cat"], tests, limits: { outputBytes: 1024 } });
  assert.ok(reply.tests?.every(({ verdict }) => verdict === "accepted"));
  assert.equal(reply.tests?.length, 800);
});

test("a variable with the name of a mark of the wire is a variable", async () => {
  for (const name of ["$bulk", "$bytes"]) {
    const env = { [name]: "QQ==" };
    const { run } = await node.client.functions.invoke({ runtime: "sh", command: ["env"], env });
    assert.ok(String(run?.stdout).includes(`${name}=QQ==\n`));
  }
});
