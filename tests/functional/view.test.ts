import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import { importDebian, whyNoDebian } from "../support/debian.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { output } from "../support/sandbox.ts";

const LIMIT_MS = 10 * 60_000;
const MIB = 1024 * 1024;
const MEMORY_MIB = 160;

/** What Python sizes its pools and heaps by. */
const PYTHON = `
import os, multiprocessing, json
print(json.dumps({
    "cpu_count": os.cpu_count(),
    "affinity": len(os.sched_getaffinity(0)),
    "pool": multiprocessing.cpu_count(),
    "online": os.sysconf("SC_NPROCESSORS_ONLN"),
    "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    "load": max(os.getloadavg()) < 1,
}))`;

const reason = whyNoDebian();

describe("what programs of Debian see of their sandbox", { skip: reason ?? false, timeout: LIMIT_MS }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNode();
    await importDebian(node.client, "debian");
    const resources = { cpus: 0.5, memoryMiB: MEMORY_MIB, swapMiB: 0 };
    sandbox = await node.client.sandboxes.create({ base: "debian", resources });
  });
  after(() => node[Symbol.asyncDispose]());

  test("Python counts one processor and the sandbox's memory", async () => {
    assert.deepEqual(JSON.parse(await output(sandbox, ["python3", "-c", PYTHON])), {
      cpu_count: 1,
      affinity: 1,
      pool: 1,
      online: 1,
      memory: MEMORY_MIB * MIB,
      load: true,
    });
  });

  test("free, nproc, lscpu, uptime, vmstat and top agree", async () => {
    const free = await output(sandbox, "free -b");
    assert.match(free, new RegExp(`^Mem: +${MEMORY_MIB * MIB} `, "m"));
    assert.match(free, /^Swap: +0 +0 +0$/m);
    assert.equal(await output(sandbox, "nproc"), "1");
    assert.match(await output(sandbox, "lscpu"), /^On-line CPU\(s\) list: +\d$/m);
    assert.match(await output(sandbox, "uptime -p"), /^up [01] minutes?$/);
    assert.match(await output(sandbox, "vmstat"), /^ *\d+ +\d+ +0 +\d+/m);
    const top = await output(sandbox, "TERM=dumb top -b -n 1");
    assert.match(top, new RegExp(`MiB Mem : +${MEMORY_MIB}\\.0 total`));
    assert.match(top, /^%Cpu\(s\): /m);
  });
});
