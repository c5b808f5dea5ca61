import assert from "node:assert/strict";
import { closeSync, openSync, readFileSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { DsecError, type Sandbox } from "#sdk";
import type { TestNode } from "../../support/node.ts";
import { output, refused } from "../../support/sandbox.ts";
import { MICROVM } from "./backend.ts";

const MIB = 1024 * 1024;

describe("faults of microVMs", { timeout: 1_200_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  function monitorOf({ id }: Sandbox): number {
    return (JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number }).pid;
  }

  /** Waits for the node to have seen it, and for what a lost sandbox leaves: its files. */
  async function lost(sandbox: Sandbox): Promise<void> {
    while ((await sandbox.info()).state !== "failed");
    await refused(sandbox.run("true"), "FailedPrecondition", /failed/);
    for (;;) {
      const counts = await node.client.nodes.resources(node.marks.edge);
      const differ = counts.filter(({ expected, found }) => expected !== found);
      if (differ.length === 0) return assert.equal(counts.find((one) => one.class === "processes")?.found, 0);
    }
  }

  for (const [fault, strike] of [
    ["a monitor that is killed", (pid: number) => process.kill(pid, "SIGKILL")],
    ["a guest whose kernel dies", wipeMemory],
  ] as const) {
    test(`vm crash leaves the sandbox ready: ${fault} ends its commands and frees what it held`, async () => {
      await using sandbox = await MICROVM.create(node);
      const command = await sandbox.start("sleep 1000");
      strike(monitorOf(sandbox));
      assert.equal((await command.result()).status.cause, "agent-lost");
      await lost(sandbox);
    });
  }

  test("an agent that hangs holds up nobody else: calls to it end at their time, and it is removed as any other", async () => {
    await using stack = new AsyncDisposableStack();
    const [hung, other] = [stack.use(await MICROVM.create(node)), stack.use(await MICROVM.create(node))];
    process.kill(monitorOf(hung), "SIGSTOP");
    await refused(hung.run("true", { timeoutMs: 2_000 }), "DeadlineExceeded");
    await refused(hung.pause({ timeoutMs: 2_000 }), "DeadlineExceeded");
    assert.equal(await output(other, "echo alive"), "alive");
    await hung.remove();
    for (const { surplus } of await node.client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
  });

  test("one sandbox fills the disk for all: its machine is not held, and what it took is there again when it goes", async () => {
    await using small = await MICROVM.startNode({ words: ["--machine-volume-size=384MiB"] });
    const freeBytes = () => {
      const { bavail, bsize } = statfsSync(join(small.runDir, "machine-disks/volume"));
      return bavail * bsize;
    };
    const sandbox = await MICROVM.create(small);
    // More than the volume has, and less than the guest's disk.
    await sandbox.start("dd if=/dev/zero of=/big bs=1M count=400; sync");
    while (freeBytes() > MIB) assert.equal(await output(sandbox, "sleep 0.2; echo here"), "here");
    assert.equal(await output(sandbox, "echo still here"), "still here");
    await sandbox.remove();
    await using other = await madeWhenThereIsRoom(small);
    assert.equal(await output(other, "echo anew >/file; cat /file"), "anew");
  });

  test("no processors, five hundred, too little memory and more than there is are refused by field", async () => {
    for (const cpus of [0, -1, 500])
      await refused(MICROVM.create(node, { resources: { cpus } }), "InvalidArgument", /cpus/);
    await refused(MICROVM.create(node, { resources: { memoryMiB: 15 } }), "InvalidArgument", /memory/);
    await refused(MICROVM.create(node, { resources: { memoryMiB: 8 * 1024 * 1024 } }), "InvalidArgument", /memory/);
    assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list()), []);
  });
});

/** What was removed is free when the volume has written that down; until then a create is refused. */
async function madeWhenThereIsRoom(node: TestNode): Promise<Sandbox> {
  for (;;) {
    try {
      return await MICROVM.create(node);
    } catch (error) {
      if (!(error instanceof DsecError && error.kind === "StorageFull")) throw error;
    }
  }
}

/** Nothing of the guest is left to run. */
function wipeMemory(pid: number): void {
  const zeros = Buffer.alloc(MIB);
  const fd = openSync(`/proc/${pid}/mem`, "r+");
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, "latin1").split("\n")) {
      const [range = "", rights = ""] = line.split(/\s+/);
      if (rights !== "rw-p" || !line.endsWith("/memory")) continue;
      const [start = 0, end = 0] = range.split("-").map((text) => Number.parseInt(text, 16));
      for (let at = start; at < end; at += MIB) writeSync(fd, zeros, 0, Math.min(MIB, end - at), at);
    }
  } finally {
    closeSync(fd);
  }
}
