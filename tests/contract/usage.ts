import assert from "node:assert/strict";
import { closeSync, openSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { DsecError, type UsageView } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

const MIB = 1024 * 1024;
const RESOURCES = { cpus: 0.5, memoryMiB: 64, pids: 50, diskMiB: 64 };

/** What a sandbox uses can be asked and watched, and is what it did. */
export function usageContract(backend: ContractBackend): void {
  describe(`the usage of a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());

    counting(() => node, backend);
    watching(() => node, backend);
  });
}

function counting(node: () => TestNode, backend: ContractBackend): void {
  const { uncounted = new Set() } = backend;
  const made = (resources = RESOURCES) => backend.create(node(), { resources });

  test("stands beside its limits", async () => {
    await using sandbox = await made();
    const { id, limits, oomKills, commands } = await sandbox.usage();
    assert.equal(id, sandbox.id);
    assert.deepEqual(limits, { cpus: 0.5, memoryBytes: 64 * MIB, swapBytes: 0, pids: 50, diskBytes: 64 * MIB });
    assert.deepEqual([oomKills, commands], [0, { running: 0, recorded: 0 }]);
  });

  test("counts processor time by kind, and how long the limit held it back", async () => {
    await using sandbox = await made({ ...RESOURCES, cpus: 0.05 });
    await sandbox.run("i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done");
    const { cpu } = await sandbox.usage();
    assert.ok(cpu.userMs > 0 && cpu.systemMs >= 0 && cpu.totalMs >= cpu.userMs, JSON.stringify(cpu));
    assert.ok(cpu.throttledMs > 0, JSON.stringify(cpu));
  });

  test("counts memory with what is in /dev/shm, and keeps the peak", async () => {
    await using sandbox = await made();
    await output(sandbox, "dd if=/dev/zero of=/dev/shm/held bs=1048576 count=20 2>/dev/null");
    const held = (await sandbox.usage()).memory;
    assert.ok(held.bytes > 20 * MIB && held.bytes <= 64 * MIB, JSON.stringify(held));
    await output(sandbox, "rm /dev/shm/held");
    const freed = (await sandbox.usage()).memory;
    assert.ok(freed.bytes < held.bytes && freed.peakBytes >= held.bytes, JSON.stringify(freed));
  });

  test("counts processes and commands, running and recorded", async () => {
    await using sandbox = await made();
    const command = await sandbox.start("sleep 600 & sleep 600 & wait");
    await output(sandbox, "true");
    await until(async () => (await sandbox.usage()).pids === 3);
    assert.deepEqual((await sandbox.usage()).commands, { running: 1, recorded: 2 });
    await command.signal("SIGKILL");
    await command.wait();
    await until(async () => (await sandbox.usage()).pids === 0);
    assert.deepEqual((await sandbox.usage()).commands, { running: 0, recorded: 2 });
  });

  test("counts what is written, and gives it back when it is removed", async () => {
    await using sandbox = await made();
    const before = await sandbox.usage();
    await output(sandbox, "dd if=/dev/urandom of=/big bs=1048576 count=16 2>/dev/null; sync");
    const full = await sandbox.usage();
    assert.ok((full.diskBytes ?? 0) - (before.diskBytes ?? 0) >= 16 * MIB, JSON.stringify([before, full]));
    if (uncounted.has("io")) assert.equal(full.io, undefined);
    else {
      assert.ok((full.io?.writeBytes ?? 0) - (before.io?.writeBytes ?? 0) >= 16 * MIB, JSON.stringify(full.io));
      assert.ok((full.io?.writeCalls ?? 0) >= 16, JSON.stringify(full.io));
    }
    await output(sandbox, "rm /big; sync");
    await until(async () => ((await sandbox.usage()).diskBytes ?? 0) < (full.diskBytes ?? 0) - 15 * MIB);
  });

  test("counts what went through its network, and nobody else's", async () => {
    await using sandbox = await made();
    await using other = await made();
    await output(sandbox, "ping -c 3 127.0.0.1");
    const { network } = await sandbox.usage();
    if (uncounted.has("network")) return assert.equal(network, undefined);
    assert.ok((network?.sentPackets ?? 0) >= 6 && (network?.receivedBytes ?? 0) >= 6 * 64, JSON.stringify(network));
    assert.equal((await other.usage()).network?.sentPackets, 0);
  });

  test("an out-of-memory kill is reported, and the sandbox lives on", async () => {
    await using sandbox = await made();
    const result = await sandbox.run(["tail", "-c", "200000000", "/dev/zero"]);
    assert.equal(result.status.cause, "out-of-memory");
    const usage = await sandbox.usage();
    assert.equal(usage.oomKills, 1);
    assert.ok(usage.memory.peakBytes > 32 * MIB, JSON.stringify(usage.memory));
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });

  test("out-of-memory kills not reported, or the sandbox silently restarted: process, time, size and limit are told", async (t) => {
    await using sandbox = await made();
    const startedAtMs = Date.now();
    // A child is killed; the shell that waits for it tells of it, and ends by itself.
    const result = await sandbox.run("$(which tail) -c 200000000 /dev/zero; echo $?");
    assert.deepEqual([result.status.cause, result.stdoutText], ["exited", "137\n"]);
    const { oomKills, oomVictims, limits, memory } = await sandbox.usage();
    assert.equal(oomKills, 1);
    if (!canReadKernelLog())
      return t.skip("the kernel's log cannot be read here: the count is right, the name is absent");
    const [victim] = oomVictims;
    assert.deepEqual([oomVictims.length, victim?.program, victim?.full], [1, "tail", "sandbox"]);
    assert.ok(Math.abs((victim?.atMs ?? 0) - startedAtMs) < 60_000, JSON.stringify(victim));
    const size = victim?.residentBytes ?? 0;
    const told = JSON.stringify({ victim, memory, limits });
    // Pages of the image's files are the process's, too, and may be charged to another sandbox.
    assert.ok(size > 0.2 * limits.memoryBytes && size <= limits.memoryBytes + 8 * MIB, told);
    assert.ok(memory.peakBytes > 0.2 * limits.memoryBytes && memory.peakBytes <= limits.memoryBytes, told);
  });

  test("a kill explains one death: a command that is killed otherwise later was not out of memory", async () => {
    await using sandbox = await made();
    await sandbox.run("tail -c 200000000 /dev/zero; true");
    const result = await sandbox.run("kill -9 $$");
    assert.deepEqual([result.status.cause, result.status.signal], ["signaled", "SIGKILL"]);
    assert.equal((await sandbox.run(["tail", "-c", "200000000", "/dev/zero"])).status.cause, "out-of-memory");
    assert.equal((await sandbox.usage()).oomKills, 2);
  });
}

function watching(node: () => TestNode, backend: ContractBackend): void {
  test("a stream shows what changes, and ends with the sandbox", async () => {
    await using sandbox = await backend.create(node());
    const seen: UsageView[] = [];
    for await (const sample of sandbox.usageStream({ periodMs: 100 })) {
      seen.push(sample);
      if (seen.length === 1) await output(sandbox, "true");
      // A sample may have been on its way when the command began.
      if (seen.length >= 3 && sample.commands.recorded === 1) await sandbox.remove();
    }
    assert.ok(seen.length >= 3);
    assert.deepEqual([seen[0]?.commands.recorded, seen.at(-1)?.commands.recorded], [0, 1]);
    assert.ok((seen[2]?.atMs ?? 0) - (seen[1]?.atMs ?? 0) >= 90);
  });

  test("watching is no use of the sandbox: it becomes idle meanwhile", async () => {
    await using sandbox = await backend.create(node(), { idleTimeoutMs: 500 });
    let samples = 0;
    for await (const _ of sandbox.usageStream({ periodMs: 100 })) samples += 1;
    assert.ok(samples >= 2, "the stream ended with the sandbox, and had watched it");
  });

  test("what is not there, and what is asked too often, is refused before a stream begins", async () => {
    await refused(
      node()
        .client.sandboxes.use(`s${node().marks.edge}-${"a".repeat(16)}`)
        .usage(),
      "NotFound",
    );
    await using sandbox = await backend.create(node());
    await refused(sandbox.usageStream({ periodMs: 99 }).next(), "InvalidArgument", /periodMs must be >= 100/);
  });

  test("a reader that leaves ends its stream on the node", async () => {
    await using sandbox = await backend.create(node());
    const leave = new AbortController();
    const reading = Array.fromAsync(sandbox.usageStream({ periodMs: 100, signal: leave.signal }));
    leave.abort(new Error("left"));
    await assert.rejects(reading, (error) => !(error instanceof DsecError));
    assert.equal((await sandbox.usage()).id, sandbox.id);
  });

  test("top shows a row for each sandbox, or a line of JSON", async () => {
    await using first = await backend.create(node(), { labels: { set: "a" } });
    await using second = await backend.create(node(), { labels: { set: "b" } });
    const shown = await dsec(node(), ["top", "--interval", "100ms"]);
    assert.equal(shown.status, 0, shown.stderr);
    const rows = shown.stdout.trim().split("\n");
    assert.match(rows[0] ?? "", /^ID +CPU +MEMORY +LIMIT/);
    assert.deepEqual(
      rows.slice(1).map((row) => row.split(" ")[0]),
      [first.id, second.id].sort(),
    );
    for (const row of rows.slice(1)) assert.match(row, /\d+\.\d%/);
    // What a machine has for itself and shares, where there is one.
    const { machine } = await first.usage();
    const column = rows[1]?.slice(rows[0]?.indexOf("MACHINE")) ?? "";
    assert.match(column, machine === undefined ? /^- / : /^\d[\d.]* MiB\+\d[\d.]* MiB /);
    const json = await dsec(node(), ["--json", "top", "--once", "--label", "set=b"]);
    const lines = json.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as UsageView);
    assert.deepEqual(
      lines.map(({ id }) => id),
      [second.id],
    );
    const gone = await dsec(node(), ["--json", "top", "--once", first.id, `s${node().marks.edge}-${"b".repeat(16)}`]);
    assert.match(gone.stdout, /"error":"no sandbox/);
    assert.equal(gone.status, 125);
    assert.match(gone.stdout, /"cpu":/);
  });
}

function canReadKernelLog(): boolean {
  try {
    closeSync(openSync("/dev/kmsg", "r"));
    return true;
  } catch {
    return false;
  }
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds()));
}
