import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

const CYCLES = 3;
/** In what it writes every number that is missing, or comes twice, shows. */
const COUNTER = "i=0; while [ $i -lt 100000 ]; do echo $i; i=$((i+1)); sleep 0.05; done";

/** What pauses promise, of a backend that has them. */
export function pausesContract(backend: ContractBackend): void {
  describe(`pauses of ${backend.name}`, { timeout: 1_200_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());

    test("files written after the first resume vanish at the second: what runs, is open and is written survives every cycle", async () => {
      await using sandbox = await backend.create(node);
      await using session = await sandbox.session({ name: "kept" });
      await session.run(
        "there=1; cd /tmp; echo first >file; exec 7<file; mkfifo pipe; (cat pipe; echo heard) >said & exec 8>pipe",
      );
      const counter = await sandbox.start(COUNTER);
      for (let cycle = 1; cycle <= CYCLES; cycle++) {
        await session.run(`echo ${cycle} >&8; echo ${cycle} >>cycles`);
        assert.equal((await sandbox.pause()).state, "paused");
        assert.equal((await sandbox.resume()).state, "ready");
      }
      const { stdout } = await session.run('exec 8>&-; wait; echo "$there $PWD $(cat <&7)"; cat said cycles');
      assert.equal(text(stdout), "1 /tmp first\n1\n2\n3\nheard\n1\n2\n3\n");
      await counter.signal("SIGKILL");
      const { stdout: counted } = await counter.result();
      const numbers = text(counted).trimEnd().split("\n");
      assert.deepEqual(numbers, [...numbers.keys()].map(String), "no line is lost, none comes twice");
    });

    test("connections inside survive", async () => {
      await using sandbox = await backend.create(node);
      await using session = await sandbox.session({ name: "ends" });
      // Input that stays open: at its end nc leaves.
      await session.run("mkfifo /tmp/idle /tmp/in; nc -l -p 4000 <>/tmp/idle >/tmp/heard &");
      await sandbox.ports.wait(4000);
      await session.run("nc 127.0.0.1 4000 </tmp/in & exec 9>/tmp/in; echo before >&9");
      await sandbox.pause();
      await session.run("echo after >&9; until grep -q after /tmp/heard; do sleep 0.05; done", { timeLimitMs: 60_000 });
      assert.equal(await output(sandbox, "cat /tmp/heard"), "before\nafter");
    });

    test("resume right after pause fails: any call resumes it first, and calls at once resume it once", async () => {
      await using sandbox = await backend.create(node);
      await sandbox.files.write("/tmp/file", "kept");
      const pausing = sandbox.pause();
      const said = await Promise.all([
        output(sandbox, "echo 1"),
        output(sandbox, "echo 2"),
        pausing.then(() => output(sandbox, "echo 3")),
      ]);
      assert.deepEqual(said, ["1", "2", "3"]);
      await sandbox.pause();
      assert.equal(text(await sandbox.files.read("/tmp/file")), "kept");
      await sandbox.pause();
      await sandbox.pause();
      assert.equal((await sandbox.info()).state, "paused", "asking changes nothing");
    });

    test("clock wrong after resume: it is the node's before anything runs, and waits inside go on where they were", async () => {
      await using sandbox = await backend.create(node);
      const sleeper = await sandbox.start("sleep 1");
      await sandbox.pause();
      const clock = Number(await output(sandbox, "date +%s"));
      assert.ok(Math.abs(clock - Date.now() / 1_000) < 60, `the clock says ${clock}`);
      const { status } = await sleeper.result();
      assert.deepEqual([status.cause, status.code], ["exited", 0]);
    });

    test("pause acknowledged, later resume fails: a node that was killed meanwhile resumes it, with what ran", async () => {
      const { id } = await backend.create(node);
      const before = node.client.sandboxes.use(id);
      const counter = await before.start(COUNTER);
      await before.pause();
      await node.kill();
      await node.start();
      const sandbox: Sandbox = node.client.sandboxes.use(id);
      assert.equal((await sandbox.info()).state, "paused");
      const [found] = (await sandbox.commands()).filter((command) => command.id === counter.id);
      assert.equal(found?.status, undefined, "it has not ended");
      assert.equal(await output(sandbox, "echo again"), "again");
      await sandbox.command(counter.id).signal("SIGTERM");
      const { status } = await sandbox.command(counter.id).result();
      assert.deepEqual([status.cause, status.signal], ["signaled", "SIGTERM"]);
      await sandbox.remove();
    });

    test("a paused sandbox holds no process, and is removed as it is", async () => {
      await using sandbox = await backend.create(node);
      await sandbox.pause();
      const counts = await node.client.nodes.resources(node.marks.edge);
      assert.deepEqual(
        counts.filter(({ expected, found }) => expected !== found),
        [],
      );
      assert.equal(counts.find((one) => one.class === "processes")?.found, 0);
      await sandbox.remove();
      assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list()), []);
    });
  });
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString();
}
