import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CreateSandbox, Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { installProgram, output } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import type { ContractBackend } from "./backend.ts";

const MIB = 1024 * 1024;
const PROCESSORS = availableParallelism();

/** A sandbox sees what it may use, in the places where programs look. */
export function viewContract(backend: ContractBackend): void {
  describe(`what a ${backend.name} sees`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());
    const made = (resources: Resources) => backend.create(node, { resources });

    memory(made);
    processors(made);
    time(made);
    calls(made);
    servers(() => node, backend);
  });
}

type Resources = NonNullable<CreateSandbox["resources"]>;
type Made = (resources: Resources) => Promise<Sandbox>;

function memory(made: Made): void {
  test("/proc/meminfo shows the host: it shows the sandbox's limit, whatever its size", async () => {
    for (const memoryMiB of [32, 100, 512]) {
      await using sandbox = await made({ memoryMiB });
      const info = await meminfo(sandbox);
      assert.equal(info.MemTotal, memoryMiB * MIB);
      assert.ok((info.MemFree ?? 0) > 0 && (info.MemAvailable ?? 0) <= memoryMiB * MIB, JSON.stringify(info));
      assert.notEqual(info.MemTotal, totalmem());
    }
  });

  test("memory that is taken and given back shows in its own sandbox alone", async () => {
    await using sandbox = await made({ memoryMiB: 256 });
    await using other = await made({ memoryMiB: 256 });
    const before = await meminfo(sandbox);
    await output(sandbox, "dd if=/dev/zero of=/dev/shm/held bs=1048576 count=48 2>/dev/null");
    const held = await meminfo(sandbox);
    assert.ok((held.MemFree ?? 0) < (before.MemFree ?? 0) - 47 * MIB, JSON.stringify([before, held]));
    assert.ok((held.Shmem ?? 0) >= 48 * MIB, JSON.stringify(held));
    assert.ok(((await meminfo(other)).MemFree ?? 0) > 200 * MIB);
    await output(sandbox, "rm /dev/shm/held");
    assert.ok(((await meminfo(sandbox)).MemFree ?? 0) > (held.MemFree ?? 0) + 47 * MIB);
  });

  test("swap of the host is not the sandbox's", async () => {
    await using sandbox = await made({ memoryMiB: 64, swapMiB: 0 });
    const info = await meminfo(sandbox);
    assert.deepEqual([info.SwapTotal, info.SwapFree], [0, 0]);
    assert.equal((await output(sandbox, "cat /proc/swaps")).split("\n").length, 1);
  });
}

function processors(made: Made): void {
  test("nproc shows the host: every place shows as many processors as the limit can keep busy", async () => {
    for (const cpus of [0.1, 1, 1.5, 64]) {
      await using sandbox = await made({ cpus: Math.min(cpus, PROCESSORS) });
      const count = Math.min(PROCESSORS, Math.ceil(cpus));
      assert.equal(await output(sandbox, "nproc"), String(count), `${cpus} cpus`);
      assert.equal(await output(sandbox, "grep -c ^processor /proc/cpuinfo"), String(count));
      assert.equal(await output(sandbox, "grep -c '^cpu[0-9]' /proc/stat"), String(count));
      const online = await output(sandbox, "cat /sys/devices/system/cpu/online");
      const allowed = await output(sandbox, "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status");
      assert.equal(online, allowed);
      assert.equal(await output(sandbox, "sed -n 's/^processor[^0-9]*//p' /proc/cpuinfo | head -n 1"), online[0]);
    }
  });

  test("sandboxes of one processor are spread over those of the machine", async (t) => {
    if (PROCESSORS < 2) return t.skip("needs two processors");
    await using first = await made({ cpus: 1 });
    await using second = await made({ cpus: 1 });
    const online = (sandbox: Sandbox) => output(sandbox, "cat /sys/devices/system/cpu/online");
    assert.notEqual(await online(first), await online(second));
  });
}

function time(made: Made): void {
  test("the machine's time and load are not the sandbox's", async () => {
    await using sandbox = await made({ cpus: 1 });
    const [up = 0, idle = 0] = (await output(sandbox, "cat /proc/uptime")).split(" ").map(Number);
    const [machineUp = 0] = readFileSync("/proc/uptime", "utf8").split(" ").map(Number);
    assert.ok(up >= 0 && up < machineUp / 2 && idle <= up + 0.1, `${up} ${idle}, the machine ${machineUp}`);
    const load = await output(sandbox, "cat /proc/loadavg");
    assert.match(load, /^0\.00 0\.00 0\.00 1\/\d+ \d+$/);
    const stat = await output(sandbox, "cat /proc/stat");
    const began = Number(/^btime (\d+)$/m.exec(stat)?.[1]);
    assert.ok(Math.abs(began * 1000 - (sandbox.view?.createdAtMs ?? 0)) < 30_000, stat);
    assert.match(stat, /^intr 0$/m);
  });

  test("its own work shows in its load and its processor time, and in no other sandbox", async () => {
    await using sandbox = await made({ cpus: 1 });
    await using other = await made({ cpus: 1 });
    await output(sandbox, "i=0; while [ $i -lt 600000 ]; do i=$((i + 1)); done");
    const used = async (one: Sandbox) => Number((await output(one, "head -n 1 /proc/stat")).split(/ +/)[1]);
    assert.ok((await used(sandbox)) >= 10, "a tenth of a second in user mode");
    assert.ok((await used(other)) < 10);
    const load = async (one: Sandbox) => Number((await output(one, "cat /proc/loadavg")).split(" ")[0]);
    await waitUntil("the load shows", 60_000, async () => (await load(sandbox)) > 0 || (await work(sandbox)));
    assert.equal(await load(other), 0);
  });

  test("nothing in /proc tells how large the machine is or how busy it is", async () => {
    await using sandbox = await made({ memoryMiB: 64 });
    const pages = Number(/^nr_free_pages (\d+)$/m.exec(await output(sandbox, "cat /proc/vmstat"))?.[1]);
    assert.ok(pages > 0 && pages <= (64 * MIB) / 4096, `${pages} free pages`);
    for (const file of ["buddyinfo", "diskstats", "interrupts", "pagetypeinfo", "schedstat", "softirqs", "zoneinfo"]) {
      assert.equal(await output(sandbox, `cat /proc/${file} 2>/dev/null | wc -c`), "0", file);
    }
    assert.equal(await output(sandbox, "ls /proc/pressure 2>/dev/null | wc -l"), "0");
  });

  test("files are read whole, in pieces and by sendfile, and cannot be written", async () => {
    await using sandbox = await made({ cpus: PROCESSORS });
    const pieces = "dd if=/proc/cpuinfo bs=100 2>/dev/null | md5sum; dd if=/proc/cpuinfo bs=65536 2>/dev/null | md5sum";
    const [first, second] = (await output(sandbox, pieces)).split("\n");
    assert.equal(first, second);
    // busybox sends with sendfile(2), and reads when that is refused.
    assert.equal(await output(sandbox, "cat /proc/cpuinfo | md5sum"), first);
    for (const file of ["/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu/online"]) {
      assert.notEqual((await sandbox.run(`echo x > ${file}`)).status.code, 0);
      assert.notEqual((await sandbox.run(`chmod 777 ${file}`)).status.code, 0);
      assert.notEqual((await sandbox.run(`rm -f ${file}`)).status.code, 0);
    }
  });
}

/** sysinfo(2), which busybox asks where others read files. */
function calls(made: Made): void {
  test("free and uptime agree with the sandbox's limits, by file and by system call", async () => {
    await using sandbox = await made({ memoryMiB: 100, swapMiB: 0 });
    const free = await output(sandbox, "free -b");
    const [, total = 0, used = 0] = (/^Mem: .*$/m.exec(free)?.[0] ?? "").split(/ +/).map(Number);
    assert.equal(total, 100 * MIB, free);
    assert.ok(used < 50 * MIB, free);
    assert.match(free, /^Swap: +0 +0 +0$/m);
    assert.match(await output(sandbox, "uptime"), /up [01] min,.* load average: 0\.\d\d, 0\.\d\d, 0\.\d\d$/);
  });

  test("many callers at once, callers that die, and addresses that are none are each answered", async () => {
    await using sandbox = await made({ memoryMiB: 64, pids: 64 });
    await installProgram(sandbox, join(import.meta.dirname, "testdata/sysinfo.c"), "/sysinfo");
    assert.equal(await output(sandbox, ["/sysinfo", "many"]), "0 failed");
    assert.equal(await output(sandbox, ["/sysinfo", "dying"]), "all gone");
    assert.equal(await output(sandbox, ["/sysinfo", "bad"]), "Bad address");
    assert.match(await output(sandbox, "free -m"), /^Mem: +64 /m);
  });

  test("commands of a spawner that was killed are answered, and those of the next one", async () => {
    await using sandbox = await made({ memoryMiB: 64 });
    const earlier = await sandbox.start("read go; free -m", { stdin: "pipe" });
    for (let round = 0; round < 3; round += 1) {
      await sandbox.run("kill -9 $(grep -l dsec-spawner /proc/[0-9]*/comm | cut -d/ -f3)");
      assert.match(await output(sandbox, "free -m"), /^Mem: +64 /m);
    }
    await earlier.write(Buffer.from("go\n"));
    assert.match((await earlier.result()).stdoutText, /^Mem: +64 /m);
  });
}

function servers(node: () => TestNode, backend: ContractBackend): void {
  test("outlives what serves it, and the node, in sandboxes that are alive", async () => {
    const sandbox = await backend.create(node(), { resources: { memoryMiB: 48 } });
    const reader = await sandbox.start("while :; do head -n 1 /proc/meminfo || echo lost; usleep 2000; done");
    for (let round = 0; round < 3; round += 1) {
      const server = serverOf(node());
      process.kill(server, "SIGKILL");
      await waitUntil("another takes its place", 20_000, async () => serverOf(node()) !== server);
      assert.equal((await meminfo(sandbox)).MemTotal, 48 * MIB);
    }
    // The node that would start another server, and the server.
    const server = serverOf(node());
    await node().kill();
    process.kill(server, "SIGKILL");
    await node().start();
    const adopted = node().client.sandboxes.use(sandbox.id);
    assert.equal((await meminfo(adopted)).MemTotal, 48 * MIB);
    const command = adopted.command(reader.id);
    await command.signal("SIGKILL");
    const lines = (await command.result()).stdoutText.trim().split("\n");
    assert.ok(lines.length > 10);
    // A server may die with one request in hand: that read fails, once, and the next one does not.
    assert.ok(
      lines.filter((line) => line !== "MemTotal:          49152 kB").length <= 4,
      lines.join("\n").slice(0, 2000),
    );
    await using later = await backend.create(node(), { resources: { memoryMiB: 40 } });
    assert.equal((await meminfo(later)).MemTotal, 40 * MIB);
    await adopted.remove();
  });
}

/** Sizes in bytes by name. */
async function meminfo(sandbox: Sandbox): Promise<Readonly<Record<string, number>>> {
  const text = await output(sandbox, "cat /proc/meminfo");
  return Object.fromEntries(
    [...text.matchAll(/^(\w+): +(\d+) kB$/gm)].map(([, name, kib]) => [name, Number(kib) * 1024]),
  );
}

async function work(sandbox: Sandbox): Promise<false> {
  await output(sandbox, "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done");
  return false;
}

function serverOf(node: TestNode): number {
  return (JSON.parse(readFileSync(join(node.runDir, "view.json"), "utf8")) as { pid: number }).pid;
}
