import assert from "node:assert/strict";
import { readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { TestNode } from "../../support/node.ts";
import { output, refused } from "../../support/sandbox.ts";
import { MICROVM } from "./backend.ts";

const MIB = 1024 * 1024;

describe("a microVM", { timeout: 600_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  test("has a kernel of its own, the clock of its node, and no network but its loopback", async () => {
    await using sandbox = await MICROVM.create(node, { hostname: "apart" });
    assert.notEqual(await output(sandbox, "uname -r"), readFileSync("/proc/sys/kernel/osrelease", "utf8").trim());
    assert.equal(await output(sandbox, "hostname"), "apart");
    assert.ok(Math.abs(Number(await output(sandbox, "date +%s")) - Date.now() / 1_000) < 60);
    assert.equal(await output(sandbox, "grep -c : /proc/net/dev"), "1");
  });

  test("its monitor has a user of its own, no rights, a filter, and nothing of the host in sight", async () => {
    await using sandbox = await MICROVM.create(node);
    const { pid } = JSON.parse(readFileSync(join(node.runDir, "machines", sandbox.id, "vmm.json"), "utf8")) as {
      pid: number;
    };
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const field = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1]?.split(/\s+/) ?? [];
    const [uid] = field("Uid");
    assert.ok(Number(uid) >= 0x0800_0000);
    assert.deepEqual(
      [...field("Uid"), ...field("Gid")],
      Array.from({ length: 8 }, () => uid),
    );
    for (const set of ["CapPrm", "CapEff", "CapBnd"]) {
      const left = BigInt(`0x${field(set)[0]}`);
      // Root of a process that takes on another user needs three of them for that, and keeps none.
      assert.ok(set === "CapBnd" ? left < 1n << 19n : left === 0n, `${set} ${left}`);
    }
    assert.deepEqual([field("NoNewPrivs"), field("Seccomp")], [["1"], ["2"]]);
    assert.match(readlinkSync(`/proc/${pid}/root`), /\/empty$/);
    for (const name of ["net", "mnt", "ipc", "uts"]) {
      assert.notEqual(readlinkSync(`/proc/${pid}/ns/${name}`), readlinkSync(`/proc/self/ns/${name}`), name);
    }
    assert.match(readFileSync(`/proc/${pid}/cgroup`, "utf8"), new RegExp(`-vm/${sandbox.id}\n`));
  });

  test("clones share randomness, hostname, machine-id, boot id: those of one template share none, and each has the time", async () => {
    // From the second on they go on from a machine with a sandbox in it.
    const said: string[][] = [];
    for (const hostname of ["first", "second", "third"]) {
      await using sandbox = await MICROVM.create(node, { hostname });
      const line =
        "head -c 16 /dev/urandom | od -An -tx1; hostname; cat /etc/hostname; tail -n 1 /etc/hosts; cat /proc/sys/kernel/random/boot_id /etc/machine-id";
      const now = Number(await output(sandbox, "date +%s"));
      assert.ok(Math.abs(now - Date.now() / 1_000) < 60, `the clock says ${now}`);
      const lines = (await output(sandbox, line)).split("\n");
      assert.deepEqual(lines.slice(1, 4), [hostname, hostname, `127.0.1.1\t${hostname}`]);
      said.push(lines);
    }
    for (const at of [0, 1, 4, 5]) assert.equal(new Set(said.map((lines) => lines[at])).size, said.length);
  });

  test("it is told what runs it, and what its machine takes of the node's memory, shared and its own", async () => {
    await using sandbox = await MICROVM.create(node);
    assert.equal((await sandbox.info()).accelerator, "tcg");
    const before = (await sandbox.usage()).machine;
    assert.ok(
      before !== undefined && before.sharedBytes > 16 * MIB && before.privateBytes > 8 * MIB,
      JSON.stringify(before),
    );
    await output(sandbox, "dd if=/dev/zero of=/dev/shm/filled bs=1M count=48 2>/dev/null");
    const { machine, memory } = await sandbox.usage();
    assert.ok(machine !== undefined && machine.privateBytes > before.privateBytes + 40 * MIB, JSON.stringify(machine));
    assert.ok(memory.bytes > 48 * MIB && memory.bytes < 80 * MIB, JSON.stringify(memory));
    await sandbox.pause();
    assert.equal((await sandbox.info()).accelerator, "tcg");
  });

  test("what it cannot enforce is refused by name, and leaves nothing", async () => {
    await refused(MICROVM.create(node, { resources: { swapMiB: 64 } }), "FailedPrecondition");
    await refused(MICROVM.create(node, { resources: { memoryMiB: 8 } }), "InvalidArgument");
    await refused(MICROVM.create(node, { resources: { diskMiB: 1 } }), "InvalidArgument");
    assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list()), []);
  });

  test("all sandboxes lost when a daemon restarts: machines are adopted, with what runs in them", async () => {
    const { id } = await MICROVM.create(node);
    const command = await node.client.sandboxes.use(id).start("echo before; sleep 1000");
    await node.kill();
    await node.start();
    const again = node.client.sandboxes.use(id);
    assert.equal(await output(again, "ps | grep -c '[s]leep 1000'"), "1");
    const listed = await again.commands();
    assert.ok(listed.some((one) => one.id === command.id && one.status === undefined));
    await again.remove();
  });
});
