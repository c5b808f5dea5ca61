import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { seededRandom } from "#control/placement/random.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import type { ContractBackend } from "./backend.ts";
import { interrupted, KILL_ROUNDS, type Moment } from "./interrupted.ts";
import { OPERATIONS, type Operation } from "./operations.ts";

/** Most operations are over by then. */
const LATEST_MS = 60;
const LIMIT_MS = 30_000;
/** What was under way says that the sandbox was lost, what came later that it has failed. */
const OUTCOMES = ["done", "agent-lost", "SandboxLost", "FailedPrecondition"];

/**
 * The agent of a sandbox is killed in the middle of everything: whoever waits is told by a type, what was told before was true,
 * nothing stays.
 */
export function agentKillsContract(backend: ContractBackend): void {
  describe(`a ${backend.name} whose agent is killed during`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let neighbour: Sandbox;
    before(async () => {
      node = await backend.startNode();
      neighbour = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());

    for (const operation of OPERATIONS) {
      test(operation.name, async () => {
        const random = seededRandom(KILL_ROUNDS);
        for (let point = 1; point <= operation.points; point++) await round(operation, { point });
        assert.equal(await round(operation, "afterwards"), "done");
        for (let kill = 0; kill < KILL_ROUNDS; kill++) await round(operation, { delayMs: random() * LATEST_MS });
        assert.equal(await output(neighbour, "echo fine"), "fine");
      });
    }

    async function round(operation: Operation, moment: Moment): Promise<string> {
      const sandbox = await backend.create(node);
      await operation.prepare?.(sandbox);
      const outcome = await interrupted(operation, sandbox, moment, () => backend.crash(node, sandbox));
      const allowed = operation.breaks === true ? [...OUTCOMES, "Unavailable"] : OUTCOMES;
      assert.ok(allowed.includes(outcome), `${outcome}, killed at ${JSON.stringify(moment)}`);
      await waitUntil("it has failed", LIMIT_MS, async () => (await sandbox.info()).state === "failed");
      for (const { id, status } of await sandbox.commands()) {
        assert.ok(status !== undefined, "a command of a dead sandbox runs");
        await sandbox.command(id).result();
      }
      await refused(sandbox.run("true"), "FailedPrecondition");
      await sandbox.remove();
      for (const count of await node.client.nodes.resources(node.marks.edge)) {
        assert.deepEqual([count.class, count.found, count.surplus], [count.class, count.expected, []]);
      }
      return outcome;
    }
  });
}
