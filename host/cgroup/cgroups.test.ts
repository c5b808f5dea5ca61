import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { readMounts } from "#host/sys/mountinfo.ts";
import { type CgroupPlan, type Cgroups, openCgroups } from "./cgroups.ts";
import { isPopulated, killCgroup, processesOf } from "./kill.ts";
import { type Controller, type NodeTree, readLayout, unifiedOf } from "./layout.ts";
import { readUsage } from "./usage.ts";

const LIMITS = { cpus: 0.5, memoryMiB: 16, swapMiB: 0, pids: 8 };
const newNode = () => `test${randomBytes(4).toString("hex")}`;

describe("cgroups of this host", () => {
  let node: string;
  let cgroups: Cgroups;

  beforeEach(async () => {
    node = newNode();
    cgroups = await openCgroups(node);
  });
  afterEach(async () => {
    for (const id of cgroups.list()) {
      await cgroups.kill(id);
      await cgroups.remove(id);
    }
    await cgroups[Symbol.asyncDispose]();
    const left = cgroups.layout.hierarchies.filter((tree) => existsSync(join(tree.mount, "dsec", node)));
    assert.deepEqual(left, [], "nothing of the node may stay");
  });

  test("every write of a plan is taken by the kernel and reads back", () => {
    const plan = cgroups.plan("s1-a", LIMITS);
    make(plan);
    const value = (file: string) => {
      const dir = plan.find((part) => existsSync(join(part.dir, file)))?.dir;
      return dir === undefined ? undefined : readFileSync(join(dir, file), "utf8").trim();
    };
    const v1 = cgroups.layout.mode !== "v2";
    assert.equal(value(v1 ? "memory.limit_in_bytes" : "memory.max"), String(16 << 20));
    assert.equal(value(v1 ? "cpu.cfs_quota_us" : "cpu.max")?.split(" ")[0], "50000");
    assert.equal(value("pids.max"), "8");
  });

  test("kill ends every process, forks included, and remove leaves nothing", async () => {
    const plan = cgroups.plan("s1-a", { ...LIMITS, memoryMiB: 256, pids: 100 });
    make(plan);
    await runIn(plan, "for i in 1 2 3 4 5 6 7 8; do (sleep 1000 & sleep 1000) & done; echo up; wait");
    assert.ok(processesOf(plan[0]?.dir ?? "").length >= 9);
    assert.ok(cgroups.usage("s1-a").pids >= 9);
    assert.equal(cgroups.isPopulated("s1-a"), true);
    await cgroups.kill("s1-a");
    assert.deepEqual(
      plan.flatMap((part) => processesOf(part.dir)),
      [],
    );
    assert.equal(cgroups.isPopulated("s1-a"), false);
    assert.deepEqual([...cgroups.list()], ["s1-a"]);
    await cgroups.remove("s1-a");
    assert.equal(cgroups.list().size, 0);
  });

  test("kill works where nothing counts processes and nothing kills at once", async () => {
    const plan = cgroups.plan("s1-a", { ...LIMITS, pids: 100 });
    make(plan);
    await runIn(plan, "for i in 1 2 3; do (sleep 1000 & sleep 1000) & done; echo up; wait");
    const tree = { version: 1, mount: "", controllers: new Set<Controller>() } as const;
    const trees = plan.slice(0, 1).map(({ dir }) => ({ tree, dir }));
    assert.equal(isPopulated(trees), true);
    await killCgroup(trees);
    assert.equal(isPopulated(trees), false);
  });

  test("freeze holds every process still until thaw, and a kill ends what is held", () => holdsStill(cgroups));

  test("so does the freezer of v1, on a host without a v2 tree", async (t) => {
    const layout = readLayout(readMounts().filter(({ fstype }) => fstype !== "cgroup2"));
    if (!layout.hierarchies.some((tree) => tree.freezes === true)) return t.skip("this host has no freezer of v1");
    const other = newNode();
    const v1 = await openCgroups(other, layout);
    try {
      await holdsStill(v1);
    } finally {
      await v1.kill("s1-a");
      await v1.remove("s1-a");
      await v1[Symbol.asyncDispose]();
    }
  });

  test("kill and remove are safe twice and for unknown ids", async () => {
    make(cgroups.plan("s1-a", LIMITS));
    for (const id of ["s1-a", "s1-a", "s1-unknown"]) {
      await cgroups.kill(id);
      await cgroups.remove(id);
    }
    assert.deepEqual(cgroups.usage("s1-unknown"), {
      cpu: { totalMs: 0, userMs: 0, systemMs: 0, throttledMs: 0 },
      memory: { bytes: 0, peakBytes: 0, swapBytes: 0 },
      oomKills: 0,
      pids: 0,
    });
    assert.deepEqual(cgroups.processes("s1-unknown"), []);
  });

  test("remove waits for processes that are dying", async () => {
    const plan = cgroups.plan("s1-a", LIMITS);
    make(plan);
    const child = await runIn(plan, "echo up; exec sleep 1000");
    const removed = cgroups.remove("s1-a");
    child.kill("SIGKILL");
    await removed;
    assert.equal(cgroups.list().size, 0);
  });

  test("the end of a node waits for agents that are dying", async () => {
    const agents = cgroups.agentDirs.map((dir) => ({ dir, writes: [], handOver: false }));
    const child = await runIn(agents, "echo up; exec sleep 1000");
    const ended = cgroups[Symbol.asyncDispose]();
    child.kill("SIGKILL");
    await ended;
    assert.deepEqual(
      cgroups.agentDirs.filter((dir) => existsSync(dir)),
      [],
    );
  });

  test("remove takes cgroups made below along", async () => {
    const plan = cgroups.plan("s1-a", LIMITS);
    make(plan);
    for (const part of plan) mkdirSync(join(part.dir, "a", "b"), { recursive: true });
    await cgroups.remove("s1-a");
    assert.equal(cgroups.list().size, 0);
  });

  test("a process over the memory limit is killed, counted, and alone", async () => {
    const plan = cgroups.plan("s1-a", { ...LIMITS, cpus: 2 });
    make(plan);
    const child = await runIn(plan, "echo up; head -c 67108864 /dev/zero | tail -c 67108864 >/dev/null; exit 3");
    const [code] = await once(child, "exit");
    assert.notEqual(code, 0);
    const usage = cgroups.usage("s1-a");
    assert.ok(usage.oomKills >= 1, `oom kills: ${usage.oomKills}`);
    const { peakBytes } = usage.memory;
    assert.ok(peakBytes > 8 << 20 && peakBytes <= 16 << 20, `peak ${peakBytes}`);
    assert.ok(usage.cpu.totalMs > 0);
    assert.ok(Math.abs(usage.cpu.userMs + usage.cpu.systemMs - usage.cpu.totalMs) < 1);
  });

  test("a process over the pids limit cannot fork", async () => {
    const plan = cgroups.plan("s1-a", { ...LIMITS, pids: 3 });
    make(plan);
    const child = await runIn(plan, "echo up; sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & wait");
    const [code] = await once(child, "exit");
    assert.notEqual(code, 0);
  });

  test("agents live outside the sandboxes and are no sandbox", async () => {
    const child = spawn("sleep", ["1000"]);
    await once(child, "spawn");
    for (const dir of cgroups.agentDirs) writeFileSync(join(dir, "cgroup.procs"), String(child.pid));
    assert.deepEqual(cgroups.agentPids(), [child.pid]);
    const lines = readFileSync(`/proc/${child.pid}/cgroup`, "utf8");
    const hits = lines.split("\n").filter((line) => line.endsWith(`/dsec/${node}/agents`));
    assert.equal(hits.length, cgroups.layout.hierarchies.length);
    assert.equal(cgroups.list().size, 0);
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  });

  test("two nodes see only their own sandboxes, and closing one leaves the other's", async () => {
    const other = await openCgroups(newNode());
    const plan = other.plan("s2-b", LIMITS);
    make(plan);
    make(cgroups.plan("s1-a", LIMITS));
    assert.deepEqual([[...cgroups.list()], [...other.list()]], [["s1-a"], ["s2-b"]]);
    await other[Symbol.asyncDispose]();
    assert.ok(plan.every((part) => existsSync(part.dir)));
    await other.remove("s2-b");
    await other[Symbol.asyncDispose]();
  });

  test("a node that comes back finds the sandboxes of the one before", async () => {
    make(cgroups.plan("s1-a", LIMITS));
    await cgroups[Symbol.asyncDispose]();
    cgroups = await openCgroups(node);
    assert.deepEqual([...cgroups.list()], ["s1-a"]);
  });
});

describe("a v2 host, as a tree of plain files", () => {
  const root = mkdtempSync(join(tmpdir(), "dsec-cgroup2-"));
  after(() => rmSync(root, { recursive: true }));
  const controllers: ReadonlySet<Controller> = new Set(["cpu", "memory", "pids"]);
  const layout = { mode: "v2", hierarchies: [{ version: 2, mount: root, controllers }] } as const;

  test("controllers are handed down once at every level, then agents weigh most", async () => {
    const dirs = [root, join(root, "dsec"), join(root, "dsec", "one")];
    mkdirSync(join(root, "dsec", "one", "agents"), { recursive: true });
    for (const dir of dirs) writeFileSync(join(dir, "cgroup.subtree_control"), dir === root ? "cpu memory\n" : "\n");
    for (const file of ["cpu.max", "memory.swap.max"]) writeFileSync(join(root, "dsec", "one", "agents", file), "max");
    const cgroups = await openCgroups("one", layout);
    const written = dirs.map((dir) => readFileSync(join(dir, "cgroup.subtree_control"), "utf8"));
    assert.deepEqual(written, ["+pids", "+cpu +memory +pids", "+cpu +memory +pids"]);
    assert.equal(readFileSync(join(root, "dsec", "one", "agents", "cpu.weight"), "utf8"), "10000");
    assert.deepEqual(cgroups.features, { controllers, cpuQuota: true, swapLimit: true, swapAvoidable: true });
    assert.deepEqual(
      cgroups.plan("s1-a", LIMITS).map((part) => part.dir),
      [join(root, "dsec", "one", "s1-a")],
    );
  });

  test("a tree that cannot hand controllers down is refused by its path, and nothing of the node stays", async (t) => {
    const unified = unifiedOf(readLayout());
    if (unified === undefined || unified.controllers.size > 0) return t.skip("needs a v2 tree without controllers");
    const node = newNode();
    const tree = { version: 2, mount: unified.mount, controllers } as const;
    await assert.rejects(openCgroups(node, { mode: "v2", hierarchies: [tree] }), {
      kind: "FailedPrecondition",
      message: `cgroup ${unified.mount} does not hand down cpu, memory, pids`,
    });
    assert.equal(existsSync(join(unified.mount, "dsec", node)), false);
  });

  test("a host without cgroups is refused with what to do", async () => {
    await assert.rejects(openCgroups("one", readLayout([])), { kind: "FailedPrecondition", hint: /cgroup2/ });
  });

  test("counters come from the v2 files", () => {
    const files: Record<string, string> = {
      "/x/cpu.stat": "usage_usec 1500\nuser_usec 900\nsystem_usec 600\nnr_throttled 2\nthrottled_usec 250\n",
      "/x/memory.current": "4096\n",
      "/x/memory.peak": "8192\n",
      "/x/memory.swap.current": "1024\n",
      "/x/memory.events": "low 0\noom 3\noom_kill 2\n",
      "/x/pids.current": "5\n",
    };
    const trees: readonly NodeTree[] = [{ tree: layout.hierarchies[0], dir: "/x" }];
    assert.deepEqual(
      readUsage(trees, (file) => files[file] ?? ""),
      {
        cpu: { totalMs: 1.5, userMs: 0.9, systemMs: 0.6, throttledMs: 0.25 },
        memory: { bytes: 4096, peakBytes: 8192, swapBytes: 1024 },
        oomKills: 2,
        pids: 5,
      },
    );
  });

  test("counters of a host that has v1 alone come from its files", () => {
    const files: Record<string, string> = {
      "/c/cpuacct.usage": "3000000\n",
      "/c/cpuacct.usage_user": "2000000\n",
      "/c/cpuacct.usage_sys": "1000000\n",
      "/c/cpu.stat": "nr_periods 9\nthrottled_time 7000000\n",
      "/m/memory.usage_in_bytes": "4096\n",
      "/m/memory.max_usage_in_bytes": "8192\n",
      "/m/memory.memsw.usage_in_bytes": "6144\n",
      "/m/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
      "/p/pids.current": "3\n",
    };
    const v1 = (dir: string, controller: Controller): NodeTree => {
      return { tree: { version: 1, mount: dir, controllers: new Set([controller]) }, dir };
    };
    assert.deepEqual(
      readUsage([v1("/c", "cpu"), v1("/m", "memory"), v1("/p", "pids")], (file) => files[file] ?? ""),
      {
        cpu: { totalMs: 3, userMs: 2, systemMs: 1, throttledMs: 7 },
        memory: { bytes: 4096, peakBytes: 8192, swapBytes: 2048 },
        oomKills: 4,
        pids: 3,
      },
    );
  });
});

async function holdsStill(cgroups: Cgroups): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "dsec-freeze-"));
  try {
    const plan = cgroups.plan("s1-a", { ...LIMITS, memoryMiB: 64, pids: 100 });
    make(plan);
    const file = join(dir, "written");
    await runIn(plan, `(while :; do echo; done >${file}) & echo up; wait`);
    const written = () => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
    for (const round of [1, 2]) {
      while (written() === 0) await delay(5);
      await cgroups.freeze("s1-a", AbortSignal.timeout(10_000));
      const before = written();
      await delay(100);
      assert.equal(written(), before, `round ${round}: it ran while it was held`);
      cgroups.thaw("s1-a");
      while (written() === before) await delay(5);
    }
    await cgroups.freeze("s1-a", AbortSignal.timeout(10_000));
    await cgroups.kill("s1-a");
    await cgroups.freeze("s1-unknown", AbortSignal.timeout(10_000));
    cgroups.thaw("s1-unknown");
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Makes what the launcher would. */
function make(plan: readonly CgroupPlan[]): void {
  for (const part of plan) {
    mkdirSync(part.dir);
    for (const [file, value] of part.writes) writeFileSync(join(part.dir, file), value, { flag: "r+" });
  }
}

/** A shell that joins the cgroups before it runs the script; resolves at its first output. */
async function runIn(plan: readonly CgroupPlan[], script: string): Promise<ChildProcess> {
  const join = plan.map((part) => `echo 0 > ${part.dir}/cgroup.procs`).join(" && ");
  const child = spawn("sh", ["-c", `${join} && ${script}`], { stdio: ["ignore", "pipe", "ignore"] });
  await once(child.stdout, "data");
  return child;
}
