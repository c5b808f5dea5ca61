import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { seededRandom } from "#control/placement/random.ts";
import { Client } from "#sdk";
import { READY_MS, type TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";
import { interrupted, KILL_ROUNDS, type Moment } from "./interrupted.ts";
import { OPERATIONS, type Operation } from "./operations.ts";
import { countProcesses, nothingRemains } from "./remains.ts";

/** Most operations are over by then. */
const LATEST_MS = 60;

/**
 * The node is killed with SIGKILL in the middle of everything, and started again: what can go on goes on as if nothing had happened, what
 * cannot is told by a type, the sandbox lives on, and of what was under way nothing stays in it.
 */
export function nodeKillsContract(backend: ContractBackend): void {
  describe(`a ${backend.name} whose node is killed during`, { timeout: 2_700_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());

    for (const operation of OPERATIONS) {
      test(operation.name, async () => {
        const random = seededRandom(KILL_ROUNDS);
        const point = 1 + Math.floor(random() * operation.points);
        await round(operation, { point });
        for (let kill = 2; kill < KILL_ROUNDS; kill++) await round(operation, { delayMs: random() * LATEST_MS });
      });
    }

    async function round(operation: Operation, moment: Exclude<Moment, "afterwards">): Promise<void> {
      using client = new Client({ url: node.url, token: node.token, retries: 20, patienceMs: READY_MS });
      const sandbox = client.sandboxes.use((await backend.create(node)).id);
      const idle = await countProcesses(sandbox);
      await operation.prepare?.(sandbox);
      const outcome = await interrupted(operation, sandbox, moment, async () => {
        const { port } = new URL(node.url);
        await node.kill();
        await node.start({ port });
      });
      const resumed = operation.resumes === true && "point" in moment;
      assert.ok(
        (resumed ? ["done"] : ["done", "Unavailable"]).includes(outcome),
        `${outcome} at ${JSON.stringify(moment)}`,
      );
      await nothingRemains(node, sandbox, idle);
    }
  });
}
