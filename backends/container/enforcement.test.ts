import assert from "node:assert/strict";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Backend, Handle } from "#core/backend.ts";
import { DEFAULT_RESOURCES, type SandboxSpec } from "#core/sandbox.ts";
import { run } from "#core/suites/backend-suite.ts";
import { agentOf } from "./handle.ts";
import { type ContainerRig, containerRig, UNKNOWN_LAYER } from "./test-support/rig.ts";

const soon = () => AbortSignal.timeout(30_000);
const SMALL = { ...DEFAULT_RESOURCES, memoryMiB: 64, diskMiB: 16 };

describe("a container", () => {
  let rig: ContainerRig;
  let backend: Backend;
  before(async () => {
    rig = await containerRig();
    backend = rig.backend;
  });
  after(() => rig[Symbol.asyncDispose]());

  /** Makes a sandbox, runs a shell line in it, removes it. */
  async function inSandbox(
    line: string,
    change: Partial<SandboxSpec> = {},
    look: (handle: Handle) => Promise<void> = async () => {},
  ): Promise<{ stdout: string; code: number | undefined }> {
    const handle = await backend.create(rig.spec(change), { slot: 3 }, soon());
    try {
      const link = await backend.connect(handle, soon());
      const result = await run(link, ["sh", "-c", line]);
      await look(handle);
      link.close();
      return result;
    } finally {
      await backend.destroy(handle.id);
    }
  }

  test("has its host name, its own network with loopback alone, and no host processes", async () => {
    const { stdout } = await inSandbox("hostname; cat /sys/class/net/*/operstate | wc -l; ps | wc -l", {
      hostname: "box-7",
    });
    const [hostname, links, processes] = stdout.trim().split("\n");
    assert.equal(hostname, "box-7");
    assert.equal(links, "1");
    assert.ok(Number(processes) < 10, `${processes} processes`);
  });

  test("runs as root inside, as its own range of ids outside, and writes plain ids", async () => {
    const { stdout } = await inSandbox("id -u; touch /made; cat /proc/self/uid_map", {}, async (handle) => {
      const { uid, gid } = statSync(join(rig.options.runDir, "volume", handle.id, "upper", "made"));
      assert.deepEqual([uid, gid], [0, 0]);
    });
    assert.deepEqual(stdout.trim().split(/\s+/), ["0", "0", String(0x0800_0000 + 3 * 65_537), "65536"]);
  });

  test("cannot touch its agent, not even as root", async () => {
    const { stdout, code } = await inSandbox(
      "kill -9 1; for f in mem environ maps exe fd/3 root cwd; do cat /proc/1/$f 2>/dev/null && echo read $f; done; ls /proc/1/fd; echo alive",
    );
    assert.deepEqual([stdout, code], ["alive\n", 0]);
  });

  test("cannot mount, cannot make namespaces, and cannot see the socket that controls it", async () => {
    const { stdout } = await inSandbox(
      "mount -t tmpfs none /tmp 2>/dev/null && echo mounted; unshare -U true 2>/dev/null && echo unshared; find / -xdev -name agent.sock",
    );
    assert.equal(stdout, "");
  });

  test("gets an error, alone, when its disk is full", async () => {
    const { stdout } = await inSandbox("dd if=/dev/urandom of=/big bs=65536 count=1024 2>/dev/null; stat -c %s /big", {
      resources: { ...SMALL, memoryMiB: 256 },
    });
    const written = Number(stdout);
    assert.ok(written > 8 << 20 && written <= 16 << 20, `wrote ${written}`);
  });

  test("loses a process, not its agent, when its memory is full, and the kill is counted", async () => {
    const hog = "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null; echo survived";
    const { stdout } = await inSandbox(hog, { resources: { ...SMALL, memoryMiB: 32, cpus: 2 } }, async (handle) => {
      const usage = await backend.usage(handle);
      assert.ok(usage.oomKills >= 1, `oom kills ${usage.oomKills}`);
      assert.ok(usage.memory.peakBytes <= 32 << 20);
      const link = await backend.connect(handle, soon());
      assert.deepEqual(await run(link, ["echo", "still"]), { stdout: "still\n", code: 0 });
      link.close();
    });
    assert.match(stdout, /survived|^$/);
  });

  test("is not what a host short of memory ends first, and no command in it can say the same of itself", async (t) => {
    const tries = [
      ["oom_score_adj", -999],
      ["oom_score_adj", -1],
      ["oom_adj", -16],
      ["oom_adj", -1],
    ].map(([file, score]) => `{ echo ${score} >/proc/self/${file}; } 2>/dev/null && echo "hidden by ${file} ${score}"`);
    const hide = ["cat /proc/self/oom_score_adj", ...tries, "cat /proc/self/oom_score_adj"].join("; ");
    let agent = "";
    const { stdout } = await inSandbox(hide, {}, async (handle) => {
      agent = readFileSync(`/proc/${agentOf(handle)?.pid}/oom_score_adj`, "utf8").trim();
    });
    assert.equal(stdout, "0\n0\n");
    if (!canLowerScores()) return t.diagnostic("the agent's own score: this machine lets nobody lower one");
    assert.equal(agent, "-941");
  });

  test("can have exactly as many processes as it was given", async () => {
    const line = "sleep 99 & sleep 99 & sleep 99 & echo three; sleep 99 & echo four";
    const { stdout } = await inSandbox(line, { resources: { ...SMALL, pids: 4 } });
    assert.equal(stdout, "three\n");
    const handle = await backend.create(rig.spec({ resources: { ...SMALL, pids: 1 } }), { slot: 4 }, soon());
    const link = await backend.connect(handle, soon());
    assert.equal((await run(link, ["true"])).code, 0);
    assert.notEqual((await run(link, ["sh", "-c", "true | true"])).code, 0);
    link.close();
    await backend.destroy(handle.id);
  });

  test("has the resource limits that were asked for", async () => {
    const { stdout } = await inSandbox("ulimit -Sn; ulimit -Hn; ulimit -c", {
      rlimits: { nofile: { soft: 100, hard: 200 }, core: { soft: 0, hard: 0 } },
    });
    assert.equal(stdout, "100\n200\n0\n");
  });

  test("is held to its share of the processor", async () => {
    const line = "timeout 1 sh -c 'while :; do :; done'; true";
    const started = performance.now();
    let cpuMs = 0;
    await inSandbox(line, { resources: { ...SMALL, cpus: 0.2 } }, async (handle) => {
      cpuMs = (await backend.usage(handle)).cpu.totalMs;
    });
    const wallMs = performance.now() - started;
    assert.ok(cpuMs > 20 && cpuMs < 0.3 * wallMs + 60, `${cpuMs} ms of processor in ${wallMs} ms`);
  });

  test("bounds /dev/shm", async () => {
    const { stdout } = await inSandbox("df -k /dev/shm | tail -1 | awk '{print $2}'");
    // The launcher may add a little for structures of its own.
    assert.ok(Number(stdout) >= 16_384 && Number(stdout) < 17_408, stdout);
  });
});

describe("what cannot be enforced is refused by name", () => {
  let rig: ContainerRig;
  before(async () => {
    rig = await containerRig();
  });
  after(() => rig[Symbol.asyncDispose]());

  const refusals: readonly [string, Partial<SandboxSpec>, { kind: string; message: RegExp }][] = [
    ["an unknown layer", { layers: [UNKNOWN_LAYER] }, { kind: "NotFound", message: /no layer sha256:0/ }],
    ["no layer", { layers: [] }, { kind: "InvalidArgument", message: /at least one layer/ }],
    [
      "memory below what a program needs",
      { resources: { ...SMALL, memoryMiB: 1 } },
      { kind: "InvalidArgument", message: /memoryMiB/ },
    ],
    [
      "memory that is no number",
      { resources: { ...SMALL, memoryMiB: Number.NaN } },
      { kind: "InvalidArgument", message: /memoryMiB/ },
    ],
    ["no processes", { resources: { ...SMALL, pids: 0 } }, { kind: "InvalidArgument", message: /pids/ }],
    ["negative swap", { resources: { ...SMALL, swapMiB: -1 } }, { kind: "InvalidArgument", message: /swapMiB/ }],
    ["no processor", { resources: { ...SMALL, cpus: 0 } }, { kind: "InvalidArgument", message: /cpus/ }],
    [
      "a disk too small for its own structures",
      { resources: { ...SMALL, diskMiB: 1 } },
      { kind: "InvalidArgument", message: /disk limit/ },
    ],
    ["a host name with a slash", { hostname: "a/b" }, { kind: "InvalidArgument", message: /hostname/ }],
    [
      "a soft limit above the hard one",
      { rlimits: { nofile: { soft: 2, hard: 1 } } },
      { kind: "InvalidArgument", message: /nofile/ },
    ],
    [
      "a hard limit above the node's",
      { rlimits: { nofile: { soft: 1, hard: 2 ** 40 } } },
      { kind: "FailedPrecondition", message: /rlimit nofile/ },
    ],
  ];
  for (const [what, change, expected] of refusals) {
    test(`${what}, by check and by create, and nothing is left`, async () => {
      const spec = rig.spec(change);
      await assert.rejects(rig.backend.check(spec), expected);
      await assert.rejects(rig.backend.create(spec, { slot: 0 }, soon()), { kind: expected.kind });
      const inventory = await rig.backend.inventory();
      assert.ok(Object.values(inventory).every((ids) => ids.size === 0));
    });
  }

  test("a slot without user ids left is NodeFull", async () => {
    await assert.rejects(rig.backend.create(rig.spec(), { slot: 40_000 }, soon()), { kind: "NodeFull" });
    assert.equal((await rig.backend.inventory())["run-directories"].size, 0);
  });

  test("a launcher that fails half-way leaves nothing", async () => {
    const backend = await rig.restart({
      mounts: { mounted: new Set<never>(), lost: new Set<never>(), acquire: async () => ["/no/such/layer"] },
    });
    await assert.rejects(backend.create(rig.spec(), { slot: 0 }, soon()), { kind: "Internal" });
    const inventory = await backend.inventory();
    assert.ok(Object.values(inventory).every((ids) => ids.size === 0));
    await rig.restart();
  });

  test("a disk limit on a node without a volume, while a sandbox without one works", async () => {
    const backend = await rig.restart({ config: { ...rig.options.config, volumeSize: 0 } });
    await assert.rejects(backend.check(rig.spec()), { kind: "FailedPrecondition", message: /disk limit/ });
    const spec = rig.spec({ resources: { ...SMALL, diskMiB: undefined } });
    const handle = await backend.create(spec, { slot: 0 }, soon());
    const link = await backend.connect(handle, soon());
    assert.equal((await run(link, ["sh", "-c", "echo x > /f && cat /f"])).stdout, "x\n");
    link.close();
    await backend.destroy(spec.id);
    await rig.restart();
  });
});

describe("a node that dies", () => {
  let rig: ContainerRig;
  before(async () => {
    rig = await containerRig();
  });
  after(() => rig[Symbol.asyncDispose]());

  test("before it wrote down the agent leaves a sandbox that is found, replaced by create, and destroyed", async () => {
    const spec = rig.spec();
    const first = await rig.backend.create(spec, { slot: 0 }, soon());
    rmSync(join(rig.options.runDir, "sandboxes", spec.id, "agent.json"));
    const backend = await rig.restart();
    assert.deepEqual([...(await backend.inventory()).processes], [spec.id]);
    const second = await backend.create(spec, { slot: 0 }, soon());
    assert.notDeepEqual(second, first);
    assert.equal(await backend.recover(first), undefined);
    rmSync(join(rig.options.runDir, "sandboxes", spec.id, "agent.json"));
    await backend.destroy(spec.id);
    assert.ok(Object.values(await backend.inventory()).every((ids) => ids.size === 0));
  });

  test("after half a write of it leaves a sandbox that can be destroyed", async () => {
    const spec = rig.spec();
    await rig.backend.create(spec, { slot: 0 }, soon());
    writeFileSync(join(rig.options.runDir, "sandboxes", spec.id, "agent.json"), '{"pid":');
    await rig.backend.destroy(spec.id);
    assert.ok(Object.values(await rig.backend.inventory()).every((ids) => ids.size === 0));
  });

  test("never has an unrelated process killed in place of an agent", async () => {
    const spec = rig.spec();
    const handle = await rig.backend.create(spec, { slot: 0 }, soon());
    const agent = agentOf(handle);
    await rig.killAgent(handle);
    // The number went to somebody else: this test.
    const file = join(rig.options.runDir, "sandboxes", spec.id, "agent.json");
    const record = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    assert.deepEqual({ pid: record.pid, startTicks: record.startTicks }, agent);
    writeFileSync(file, JSON.stringify({ ...record, pid: process.pid }));
    await rig.backend.destroy(spec.id);
    assert.ok(Object.values(await rig.backend.inventory()).every((ids) => ids.size === 0));
  });
});

/** CAP_SYS_RESOURCE over the whole machine, which root in some containers lacks. */
function canLowerScores(): boolean {
  const effective = /^CapEff:\s*(\w+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return (
    ((BigInt(`0x${effective}`) >> 24n) & 1n) === 1n && readFileSync("/proc/self/uid_map", "utf8").includes("4294967295")
  );
}
