import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Controller, readLayout } from "./layout.ts";
import { agentWrites, type CgroupFeatures, checkLimits, limitWrites } from "./limits.ts";

const ALL: ReadonlySet<Controller> = new Set(["cpu", "memory", "pids"]);
const FULL: CgroupFeatures = { controllers: ALL, cpuQuota: true, swapLimit: true, swapAvoidable: true };
const LIMITS = { cpus: 1.5, memoryMiB: 64, swapMiB: 16, pids: 20 };
const MIB = 1024 * 1024;

describe("limits become writes", () => {
  test("v1 limits memory before memory plus swap", () => {
    assert.deepEqual(limitWrites({ version: 1, controllers: ALL }, LIMITS, FULL), [
      ["cpu.shares", "1536"],
      ["cpu.cfs_quota_us", "150000"],
      ["memory.limit_in_bytes", String(64 * MIB)],
      ["memory.memsw.limit_in_bytes", String(80 * MIB)],
      ["pids.max", "20"],
    ]);
  });

  test("v2 limits swap apart from memory", () => {
    assert.deepEqual(limitWrites({ version: 2, controllers: ALL }, LIMITS, FULL), [
      ["cpu.weight", "150"],
      ["cpu.max", "150000 100000"],
      ["memory.max", String(64 * MIB)],
      ["memory.swap.max", String(16 * MIB)],
      ["pids.max", "20"],
    ]);
  });

  test("a tree gets only the writes of its own controllers", () => {
    assert.deepEqual(limitWrites({ version: 2, controllers: new Set() }, LIMITS, FULL), []);
    assert.deepEqual(limitWrites({ version: 1, controllers: new Set(["pids"]) }, LIMITS, FULL), [["pids.max", "20"]]);
    assert.deepEqual(agentWrites({ version: 1, controllers: new Set(["pids"]) }), []);
  });

  test("without swap accounting v1 keeps a sandbox out of swap by its swappiness", () => {
    const writes = limitWrites(
      { version: 1, controllers: new Set(["memory"]) },
      { ...LIMITS, swapMiB: 0 },
      {
        ...FULL,
        swapLimit: false,
      },
    );
    assert.deepEqual(writes.at(-1), ["memory.swappiness", "0"]);
  });

  test("every accepted number of cpus gives a quota and a weight that the kernel accepts", () => {
    fc.assert(
      fc.property(fc.double({ min: 0.01, max: 4096, noNaN: true }), (cpus) => {
        const v1 = new Map(limitWrites({ version: 1, controllers: new Set(["cpu"]) }, { ...LIMITS, cpus }, FULL));
        const v2 = new Map(limitWrites({ version: 2, controllers: new Set(["cpu"]) }, { ...LIMITS, cpus }, FULL));
        assert.ok(Number(v1.get("cpu.cfs_quota_us")) >= 1000);
        assert.ok(Number(v1.get("cpu.shares")) >= 2 && Number(v1.get("cpu.shares")) <= 262_144);
        assert.ok(Number(v2.get("cpu.weight")) >= 1 && Number(v2.get("cpu.weight")) <= 10_000);
        assert.match(v2.get("cpu.max") ?? "", /^\d+ 100000$/);
      }),
    );
  });
});

describe("what a host cannot enforce is refused by name", () => {
  for (const controller of ALL) {
    test(`no ${controller} controller`, () => {
      const controllers = new Set([...ALL].filter((name) => name !== controller));
      assert.throws(() => checkLimits(LIMITS, { ...FULL, controllers }), {
        kind: "FailedPrecondition",
        message: `this node cannot enforce the ${controller} limit`,
      });
    });
  }

  test("no CPU quota", () => {
    assert.throws(() => checkLimits(LIMITS, { ...FULL, cpuQuota: false }), /cpu limit/);
  });

  test("swap without swap accounting, whether asked for or only not preventable", () => {
    const noLimit = { ...FULL, swapLimit: false };
    assert.throws(() => checkLimits(LIMITS, noLimit), { kind: "FailedPrecondition", message: /swap limit/ });
    checkLimits({ ...LIMITS, swapMiB: 0 }, noLimit);
    assert.throws(() => checkLimits({ ...LIMITS, swapMiB: 0 }, { ...noLimit, swapAvoidable: false }), /swap limit/);
  });

  test("fewer cpus than the kernel schedules, and no number at all", () => {
    for (const cpus of [0, 0.009, -1, Number.NaN]) {
      assert.throws(() => checkLimits({ ...LIMITS, cpus }, FULL), { kind: "InvalidArgument" });
    }
  });
});

describe("the layout follows from the mounts", () => {
  const mount = (fstype: string, target: string, ...options: string[]) => ({
    root: "/",
    target,
    fstype,
    source: fstype,
    options: ["rw", ...options],
  });

  test("v1 trees beside an empty v2 tree are hybrid, and the v2 tree comes last", () => {
    const layout = readLayout([
      mount("cgroup2", "/x/unified"),
      mount("cgroup", "/x/cpu,cpuacct", "cpu", "cpuacct"),
      mount("cgroup", "/x/memory", "memory"),
      mount("cgroup", "/x/freezer", "freezer"),
      mount("cgroup", "/x/pids", "pids"),
      mount("cgroup", "/second/pids", "pids"),
    ]);
    assert.equal(layout.mode, "hybrid");
    assert.deepEqual(
      layout.hierarchies.map((tree) => [tree.mount, [...tree.controllers]]),
      [
        ["/x/cpu,cpuacct", ["cpu"]],
        ["/x/memory", ["memory"]],
        ["/x/pids", ["pids"]],
        ["/x/unified", []],
      ],
    );
  });

  test("v1 alone and nothing at all are told apart", () => {
    assert.equal(readLayout([mount("cgroup", "/x/pids", "pids")]).mode, "v1");
    assert.equal(readLayout([mount("tmpfs", "/x")]).mode, "none");
  });
});
