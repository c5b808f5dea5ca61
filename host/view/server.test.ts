import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { type Cgroups, openCgroups } from "#host/cgroup/cgroups.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { openView, type View } from "./server.ts";
import { viewTrees } from "./trees.ts";

const BUILD = join(import.meta.dirname, "../../.build");
const ID = "s1-a";
execFileSync("flock", [import.meta.dirname, "make", "-s", "-C", import.meta.dirname, "all", "asan"]);

for (const binary of ["dsec-view", "dsec-view-asan"]) {
  describe(`${binary} serves the view of sandboxes`, { timeout: 60_000 }, () => {
    let root: string;
    let node: string;
    let cgroups: Cgroups;
    let view: View;
    let isInUse = false;
    const said: string[] = [];

    beforeEach(async () => {
      root = mkdtempSync(join(tmpdir(), "dsec-view-"));
      node = `test${randomBytes(4).toString("hex")}`;
      cgroups = await openCgroups(node);
      mkdirSync(join(root, "sandboxes", ID), { recursive: true });
      for (const part of cgroups.plan(ID, { cpus: 0.5, memoryMiB: 24, swapMiB: 0, pids: 10 })) {
        mkdirSync(part.dir);
        for (const [file, value] of part.writes) writeFileSync(join(part.dir, file), value, { flag: "r+" });
      }
      isInUse = false;
      view = await open();
    });
    afterEach(async () => {
      isInUse = false;
      await view[Symbol.asyncDispose]();
      assert.equal(mountAt(view.path), undefined);
      for (const name of ["view", "view.json", "view.request"]) assert.equal(existsSync(join(root, name)), false, name);
      await cgroups.kill(ID);
      await cgroups.remove(ID);
      await cgroups[Symbol.asyncDispose]();
      rmSync(root, { recursive: true });
    });

    function open(): Promise<View> {
      return openView({
        binary: join(BUILD, binary),
        runDir: root,
        sandboxesDir: join(root, "sandboxes"),
        node,
        trees: cgroups.trees,
        cgroups: cgroups.agentDirs,
        isInUse: () => isInUse,
        log: (line) => said.push(line),
      });
    }
    /** A program of the sandbox's cgroups. */
    function inside(line: string): ChildProcess {
      const enter = cgroups.trees.map(({ dir }) => `echo 0 > ${dir}/${ID}/cgroup.procs`).join(" && ");
      return spawn("sh", ["-c", `${enter} && cd ${view.path} && ${line}`], { stdio: ["pipe", "pipe", "pipe"] });
    }
    async function read(line: string): Promise<string> {
      const child = inside(line);
      assert.ok(child.stdout !== null && child.stderr !== null);
      const [out, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
      return out + errors;
    }

    test("each reader sees its own limits, and a reader of no sandbox nothing", async () => {
      assert.match(await read("cat meminfo"), /^MemTotal: +24576 kB\nMemFree: /);
      assert.equal(await read("cat online"), "0\n");
      assert.throws(() => readFileSync(join(view.path, "meminfo")), { code: "EACCES" });
    });

    test("keeps no right that it does not need", async () => {
      await read("cat meminfo");
      const status = readFileSync(`/proc/${view.pid}/status`, "latin1");
      // CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, as far as the node has them.
      const effective = BigInt(`0x${/^CapEff:\s*(\w+)$/m.exec(status)?.[1]}`);
      assert.equal(effective & ~((1n << 2n) | (1n << 19n)), 0n);
      assert.match(status, /^NoNewPrivs:\s*1$/m);
    });

    test("lives with the agents: what ends the cgroup of the node leaves it alone", () => {
      assert.deepEqual(cgroups.agentPids().toSorted(), [view.pid, view.holderPid].toSorted());
    });

    test("what the node wrote down about a sandbox decides which processors it sees, and since when it runs", async () => {
      const record = { pid: 1, startTicks: 1, createdTicks: 100, cpus: 3, processors: "1,3-4" };
      writeFileSync(join(root, "sandboxes", ID, "agent.json"), JSON.stringify(record));
      assert.equal(await read("cat online"), "1,3-4\n");
      assert.equal(await read("grep -o '^cpu[0-9]*' stat | tr '\\n' ' '"), "cpu cpu1 cpu3 cpu4 ");
      const up = Number((await read("cat uptime")).split(" ")[0]);
      const machineUp = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
      assert.ok(Math.abs(machineUp - 1 - up) < 30, `${up} of ${machineUp}`);
    });

    test("records that make no sense change nothing but what is shown", async () => {
      const file = join(root, "sandboxes", ID, "agent.json");
      const records = [
        "",
        "{",
        '{"processors":"9-2"}',
        '{"processors":"0-99999"}',
        '{"processors":"x","createdTicks":-1}',
      ];
      for (const record of [...records, `{"processors":"${"0,".repeat(4000)}"}`]) {
        writeFileSync(file, record);
        for (const name of ["online", "stat", "cpuinfo", "uptime", "loadavg", "meminfo"]) {
          assert.notEqual(await read(`cat ${name} | head -c 10`), "", `${name} of ${record.slice(0, 50)}`);
        }
      }
    });

    test("names and kinds of access that it does not have are refused", async () => {
      assert.match(await read("cat other"), /No such file/);
      assert.match(await read("echo x > meminfo"), /Read-only|cannot create/);
      assert.match(await read("mkdir d"), /Read-only|cannot create/);
      assert.match(await read("ls -ld meminfo"), /^-r--r--r--/);
    });

    test("a reader that waits when its server dies is answered by the next one", async () => {
      await read("cat meminfo");
      const { pid } = view;
      process.kill(pid, "SIGSTOP");
      const child = inside("exec cat meminfo");
      assert.ok(child.stdout !== null && child.stderr !== null);
      const waiting = Promise.all([text(child.stdout), text(child.stderr)]);
      await isWaiting(child, "cat");
      process.kill(pid, "SIGKILL");
      // The request was in the queue, or in the hand of the one that died.
      assert.match((await waiting).join(""), /^MemTotal: +24576 kB\n|Input\/output error/);
      assert.match(await read("cat meminfo"), /^MemTotal: +24576 kB\n/);
      assert.notEqual(view.pid, pid);
      assert.match(said.at(-1) ?? "", /another takes its place/);
    });

    test("a request in the hand of a dead server is given up", async () => {
      await read("cat meminfo");
      const { pid } = view;
      process.kill(pid, "SIGKILL");
      // As it is left by one that died between taking a request and answering it; the kernel does not know this one.
      const page = Buffer.alloc(40);
      page.writeBigUInt64LE(0xfffffff0n, 8);
      writeFileSync(join(root, "view.request"), page, { flag: "r+" });
      assert.match(await read("cat meminfo"), /^MemTotal: +24576 kB\n/);
    });

    test("a server that hangs holds readers up for some seconds, and is followed by another", async () => {
      const { pid } = view;
      const record = join(root, "sandboxes", ID, "agent.json");
      // Whoever opens it to read waits for a writer.
      execFileSync("mkfifo", [record]);
      assert.match(await read("cat uptime"), /Input\/output error/);
      rmSync(record);
      assert.match(await read("cat uptime"), /^\d+\.\d\d \d+\.\d\d\n$/);
      assert.notEqual(view.pid, pid);
    });

    test("a node and its server that die together leave the connection to the next node", async () => {
      const held = inside("exec 3<meminfo; echo open; read go; cat <&3");
      assert.ok(held.stdout !== null && held.stdin !== null);
      assert.equal(String((await once(held.stdout, "data"))[0]), "open\n");
      isInUse = true;
      await view[Symbol.asyncDispose]();
      process.kill(view.pid, "SIGKILL");
      view = await open();
      held.stdin.write("go\n");
      assert.match(await text(held.stdout), /^MemTotal: +24576 kB/);
      assert.deepEqual(cgroups.agentPids().toSorted(), [view.pid, view.holderPid].toSorted());
    });

    test("whoever holds the connection is followed, too", async () => {
      const { holderPid } = view;
      process.kill(holderPid, "SIGKILL");
      while (view.holderPid === holderPid || view.holderPid === 0) await delay(5);
      assert.match(await read("cat meminfo"), /^MemTotal: +24576 kB\n/);
      isInUse = true;
      await view[Symbol.asyncDispose]();
      process.kill(view.pid, "SIGKILL");
      view = await open();
      assert.match(await read("cat meminfo"), /^MemTotal: +24576 kB\n/);
    });

    test("one that is in use stays when its node goes, and the next node takes it over", async () => {
      const held = inside("exec 3<meminfo; echo open; sleep 0.5; cat <&3");
      assert.ok(held.stdout !== null);
      const [first] = await once(held.stdout, "data");
      assert.equal(String(first), "open\n");
      const { pid } = view;
      isInUse = true;
      await view[Symbol.asyncDispose]();
      assert.match(await read("head -n 1 meminfo"), /^MemTotal: +24576 kB/);
      view = await open();
      assert.notEqual(view.pid, pid);
      assert.match(await text(held.stdout), /^MemTotal: +24576 kB/);
    });
  });
}

test("a server that is not built is refused with what to do, and leaves nothing", async () => {
  const root = mkdtempSync(join(tmpdir(), "dsec-view-"));
  const options = {
    runDir: root,
    sandboxesDir: root,
    node: "n",
    trees: [],
    cgroups: [],
    isInUse: () => false,
    log: () => undefined,
  };
  for (const binary of ["/no/such/program", "/bin/false"]) {
    await assert.rejects(openView({ ...options, binary }), { kind: "FailedPrecondition", hint: /make -C host\/view/ });
    assert.deepEqual(readdirSync(root), []);
  }
  rmSync(root, { recursive: true });
});

test("trees are named by what they count", () => {
  const v1 = (name: "cpu" | "memory" | "pids") => ({
    tree: { version: 1, mount: `/${name}`, controllers: new Set([name]) } as const,
    dir: `/${name}/dsec/n`,
  });
  const v2 = (controllers: readonly ("cpu" | "memory" | "pids")[]) => ({
    tree: { version: 2, mount: "/u", controllers: new Set(controllers) } as const,
    dir: "/u/dsec/n",
  });
  const hybrid = viewTrees([v1("memory"), v1("cpu"), v1("pids"), v2([])]);
  assert.deepEqual(hybrid, [
    "memory=1:/memory/dsec/n",
    "cpu=1:/cpu/dsec/n",
    "pids=1:/pids/dsec/n",
    "times=2:/u/dsec/n",
  ]);
  const unified = viewTrees([v2(["cpu", "memory", "pids"])]);
  assert.deepEqual(
    unified,
    ["memory", "cpu", "pids", "times"].map((name) => `${name}=2:/u/dsec/n`),
  );
  assert.equal(viewTrees([v1("memory"), v1("cpu"), v1("pids")]).at(-1), "times=1:/cpu/dsec/n");
});

/** Resolves when the program waits for the kernel. */
async function isWaiting(child: ChildProcess, name: string): Promise<void> {
  while (!readFileSync(`/proc/${child.pid}/stat`, "latin1").includes(`(${name}) S`)) await delay(5);
}
