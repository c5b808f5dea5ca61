import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { seededRandom } from "#control/placement/random.ts";
import type { TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";
import { KILL_ROUNDS } from "./interrupted.ts";
import { OPERATIONS, type Operation } from "./operations.ts";
import { countProcesses, nothingRemains } from "./remains.ts";

const CLIENT = join(import.meta.dirname, "client.ts");

/** A client is killed with SIGKILL in the middle of everything: what it began comes to an end, and nothing of it stays. */
export function clientKillsContract(backend: ContractBackend): void {
  describe(`a ${backend.name} whose client is killed during`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());

    for (const operation of OPERATIONS) {
      test(operation.name, async () => {
        const random = seededRandom(KILL_ROUNDS);
        for (let kill = 1; kill < KILL_ROUNDS; kill++) {
          await round(operation, 1 + Math.floor(random() * operation.points));
        }
      });
    }

    async function round(operation: Operation, point: number): Promise<void> {
      const sandbox = await backend.create(node);
      const idle = await countProcesses(sandbox);
      await operation.prepare?.(sandbox);
      const client = spawn(process.execPath, [CLIENT, node.url, sandbox.id, operation.name], {
        env: { ...process.env, TOKEN: node.token },
        stdio: ["pipe", "pipe", "inherit"],
      });
      const ended = once(client, "close");
      let reached = 0;
      for await (const _ of createInterface({ input: client.stdout })) {
        reached += 1;
        if (reached === point) client.kill("SIGKILL");
        else client.stdin.write("on\n");
      }
      await ended;
      assert.equal(client.signalCode, "SIGKILL", `it came to ${reached} of its ${operation.points} points`);
      await nothingRemains(node, sandbox, idle);
    }
  });
}
