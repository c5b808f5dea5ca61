import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";

/** Commands live by id and end in exactly one observed way. */
export function commandsContract(backend: ContractBackend): void {
  describe(`commands in a ${backend.name}`, { timeout: 300_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());

    test("a background command without a pid or id: both are there at the start", async () => {
      const command = await sandbox.start(["sleep", "600"]);
      assert.ok(command.id.length > 0);
      assert.ok((command.pid ?? 0) > 1);
      await command.signal("SIGTERM");
      const { status } = await command.wait();
      assert.deepEqual([status.cause, status.signal, status.code], ["signaled", "SIGTERM", undefined]);
    });
  });
}
