import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { TestNode } from "../support/node.ts";
import { refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import type { ContractBackend } from "./backend.ts";

/** However a command ends, and whatever programs do to the sandbox around it, its end is told as what it was. */
export function endsContract(backend: ContractBackend): void {
  describe(`ends in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());

    test("a memory hog: the command that took too much ends as out-of-memory, the sandbox answers all the while", async () => {
      await using sandbox = await backend.create(node, { resources: { memoryMiB: 64 } });
      const hog = await sandbox.start("echo begun; text=x; while :; do text=$text$text; done");
      const answers = (async () => {
        let count = 0;
        while ((await hog.info()).status === undefined) {
          await sandbox.files.stat("/etc").catch((error: { kind: string }) => assert.equal(error.kind, "SandboxLimit"));
          count += 1;
        }
        return count;
      })();
      const { status, stdoutText } = await hog.result();
      assert.deepEqual([status.cause, status.signal, status.code], ["out-of-memory", "SIGKILL", undefined]);
      assert.equal(stdoutText, "begun\n");
      assert.ok((await answers) > 0);
      assert.equal((await sandbox.run("echo alive")).stdoutText, "alive\n");
    });

    test("exit reported as 9 when a signal killed it: a SIGKILL that somebody sent is no lack of memory", async () => {
      await using sandbox = await backend.create(node);
      const asked = await sandbox.start(["sleep", "600"]);
      await asked.signal(9);
      assert.equal((await asked.wait()).status.cause, "signaled");
      assert.equal((await sandbox.run("kill -9 $$")).status.cause, "signaled");
    });

    test("stream hangs when the sandbox dies: removal ends waits and readers, with the cause", async () => {
      const sandbox = await backend.create(node);
      const command = await sandbox.start("echo said; sleep 600");
      const output = command.stdout();
      assert.equal(String((await output.next()).value), "said\n");
      const [waited, read] = [command.wait(), output.next()];
      // Both questions are with the node before the removal is.
      await waitUntil("it is asked", 20_000, async () => (await sandbox.info()).runningCommands === 1);
      await sandbox.remove();
      assert.equal((await read.catch(() => ({ done: true }))).done, true);
      const end = await waited.catch((error: { kind: string }) => error);
      // Whoever asks only after the removal is told that there is no such sandbox.
      if ("status" in end) assert.deepEqual([end.status.cause, end.status.code], ["sandbox-stopped", undefined]);
      else assert.equal(end.kind, "NotFound");
    });

    test("a broken stream turned into a clean exit 0: a sandbox that dies ends its commands as agent-lost", async () => {
      const sandbox = await backend.create(node);
      const command = await sandbox.start("seq 1 100000; sleep 600");
      await waitUntil("it has written", 20_000, async () => (await command.info()).stdout.seen === 588_895);
      await backend.crash(node, sandbox);
      const result = await command.result();
      assert.deepEqual(
        [result.status.cause, result.status.code, result.status.signal],
        ["agent-lost", undefined, undefined],
      );
      assert.equal(result.stdoutText.length, 588_895);
      await refused(sandbox.run("true"), "FailedPrecondition");
      await sandbox.remove();
    });

    test("fork bomb kills the agent: it answers, other sandboxes do not notice, and the bomb can be ended", async () => {
      await using sandbox = await backend.create(node, { resources: { pids: 64 } });
      await using other = await backend.create(node);
      const bomb = await sandbox.start("bomb() { bomb | bomb & }; (bomb) & exec sleep 600");
      await waitUntil("it has spread", 20_000, async () => (await sandbox.usage()).pids >= 32);
      // Whether there is room for another process changes all the time: either way there is an answer.
      for (let asked = 0; asked < 20; asked++) {
        await sandbox.run("true").catch((error: { kind: string }) => assert.equal(error.kind, "SandboxLimit"));
      }
      assert.equal((await other.run("echo alive")).stdoutText, "alive\n");
      assert.equal((await bomb.info()).status, undefined);
      await bomb.signal("SIGKILL");
      assert.equal((await bomb.wait()).status.signal, "SIGKILL");
      await waitUntil("commands start again", 20_000, async () => {
        await sandbox.start("kill -9 -1").catch(() => undefined);
        return (await sandbox.run("echo alive").catch(() => undefined))?.stdoutText === "alive\n";
      });
    });
  });
}
