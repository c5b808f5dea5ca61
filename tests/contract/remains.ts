import assert from "node:assert/strict";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";

/** Processes of a sandbox beside the shell that counts them. */
const COUNT = "ls /proc | grep -c '^[0-9]'";
const LIMIT_MS = 30_000;

/** How many processes a sandbox has that does nothing. */
export function countProcesses(sandbox: Sandbox): Promise<string> {
  return output(sandbox, COUNT);
}

/**
 * Asserts that a sandbox lives and that all that was started in it has, or comes to, an end that is observed; removes it, and asserts that
 * the node has nothing but what it should. `idle`: the processes before.
 */
export async function nothingRemains(node: TestNode, sandbox: Sandbox, idle: string): Promise<void> {
  assert.equal((await sandbox.info()).state, "ready");
  for (const { name } of await sandbox.sessions()) await sandbox.openedSession(name).remove();
  for (const { id } of await sandbox.commands()) {
    const command = sandbox.command(id);
    await command.signal("SIGKILL");
    const { status } = await command.wait({ timeoutMs: LIMIT_MS });
    assert.ok(["exited", "signaled"].includes(status.cause), status.cause);
  }
  await waitUntil("nobody is at work", LIMIT_MS, async () => (await countProcesses(sandbox)) === idle);
  await sandbox.remove();
  for (const count of await node.client.nodes.resources(node.marks.edge)) {
    assert.deepEqual([count.class, count.found, count.surplus], [count.class, count.expected, []]);
  }
}
