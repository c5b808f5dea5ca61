import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import type { Handle } from "#core/backend.ts";
import { run } from "#core/suites/backend-suite.ts";
import { openCgroups } from "#host/cgroup/cgroups.ts";
import { startCradle } from "#host/cradle/client.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { openVolume } from "#host/volume/volume.ts";
import { agentOf } from "./handle.ts";
import { type ContainerRig, containerRig, TEST_CONFIG } from "./test-support/rig.ts";

const CONFIG = { ...TEST_CONFIG, blanks: 3 };
const soon = () => AbortSignal.timeout(30_000);

describe("blanks of a node", () => {
  let rig: ContainerRig;
  beforeEach(async () => {
    rig = await containerRig({ config: CONFIG });
  });
  afterEach(() => rig[Symbol.asyncDispose]());

  const expect = (wanted: readonly number[]) => rig.backend.expect(wanted.map((slot) => ({ slot })));
  const create = (slot: number): Promise<Handle> => rig.backend.create(rig.spec(), { slot }, soon());
  /** Resolves when these slots, and no others, have a blank that waits. */
  const blanksOf = async (wanted: readonly number[]): Promise<ReadonlySet<number>> => {
    const dir = join(rig.options.runDir, "blanks");
    for (const limit = soon(); ; await turn()) {
      limit.throwIfAborted();
      const names = readdirSync(dir).sort();
      const pids = waiting(rig);
      if (pids.size === wanted.length && String(names) === String(wanted.map((slot) => `${slot}.sock`))) return pids;
    }
  };

  test("are made for the slots that come next, and each becomes the sandbox of its slot", async () => {
    expect([0, 1, 2]);
    const pids = await blanksOf([0, 1, 2]);
    assert.equal(pids.size, 3);
    const handle = await create(0);
    assert.ok(pids.has(agentOf(handle)?.pid ?? 0), "the sandbox is no blank of before");
    const link = await rig.backend.connect(handle, soon());
    assert.deepEqual(await run(link, ["sh", "-c", "hostname; id -u"]), { stdout: "sandbox\n0\n", code: 0 });
    link.close();
    assert.deepEqual(await blanksOf([1, 2]), new Set([...pids].filter((pid) => pid !== agentOf(handle)?.pid)));
    await rig.backend.destroy(handle.id);
  });

  test("are used once: what a sandbox leaves at its slot is a new one's no more", async () => {
    expect([0]);
    await blanksOf([0]);
    const first = await create(0);
    await rig.backend.destroy(first.id);
    expect([0]);
    await blanksOf([0]);
    const second = await create(0);
    assert.notEqual(agentOf(second)?.pid, agentOf(first)?.pid);
    await rig.backend.destroy(second.id);
  });

  test("that are in the making are waited for, and never doubled", async () => {
    expect([0, 1]);
    const handles = await Promise.all([0, 1].map(create));
    const inventory = await rig.backend.inventory();
    assert.deepEqual([inventory.blanks.size, inventory["user-ids"].size], [0, 2]);
    for (const handle of handles) await rig.backend.destroy(handle.id);
  });

  test("of creates that fail are ended, and nothing of them is left", async () => {
    expect([0]);
    await blanksOf([0]);
    await assert.rejects(rig.backend.create(rig.failingSpec(), { slot: 0 }, soon()));
    const handle = await create(0);
    await blanksOf([]);
    await rig.backend.destroy(handle.id);
    assert.ok(Object.values(await rig.backend.inventory()).every((found) => found.size === 0));
  });

  test("that were killed are replaced by the create itself", async () => {
    expect([0]);
    for (const pid of await blanksOf([0])) process.kill(pid, "SIGKILL");
    const handle = await create(0);
    const link = await rig.backend.connect(handle, soon());
    assert.deepEqual(await run(link, ["echo", "alive"]), { stdout: "alive\n", code: 0 });
    link.close();
    await rig.backend.destroy(handle.id);
  });

  test("end with their node", async () => {
    expect([0, 1, 2]);
    const pids = await blanksOf([0, 1, 2]);
    await rig.restart({ config: CONFIG });
    assert.equal(waiting(rig).size, 0);
    for (const pid of pids) assert.equal(processStartTicks(pid), undefined, `blank ${pid} lives on`);
  });

  test("of a node that was killed leave no upper to the next one", async () => {
    await rig.backend[Symbol.asyncDispose]();
    const { dataDir, runDir } = rig.options;
    // Adopted by the node that starts.
    const volume = await openVolume({ dataDir, runDir, sizeMiB: CONFIG.volumeSize });
    volume.createUpper("blank-7", undefined);
    const backend = await rig.restart({ config: CONFIG });
    assert.equal((await backend.inventory()).uppers.size, 0);
  });

  test("that no node keeps count as leaks", async () => {
    const { agentDirs } = await openCgroups(rig.edge);
    const stray = await startCradle({
      binary: rig.options.binaries.cradle,
      agentBinary: rig.options.binaries.agent,
      log: (line) => console.error(line),
    });
    const socketPath = join(rig.root, "stray.sock");
    const uidBase = 0x0900_0000;
    await stray.blank({ uidBase, socketPath, shmBytes: 4096, agentCgroups: agentDirs }, soon());
    assert.deepEqual((await rig.backend.inventory()).blanks, new Set([`user ids ${uidBase}`]));
    await stray[Symbol.asyncDispose]();
    assert.equal((await rig.backend.inventory()).blanks.size, 0);
  });
});

test("agents of sandboxes that are being removed are taken for no blanks", async () => {
  await using rig = await containerRig();
  for (let round = 0; round < 6; round += 1) {
    const specs = Array.from({ length: 12 }, () => rig.spec());
    await Promise.all(specs.map((spec, index) => rig.backend.create(spec, { slot: index + 1 }, soon())));
    let isOver = false;
    const removed = Promise.all(specs.map(({ id }) => rig.backend.destroy(id))).finally(() => {
      isOver = true;
    });
    while (!isOver) {
      assert.deepEqual((await rig.backend.inventory()).blanks, new Set());
      await turn();
    }
    await removed;
  }
});

/** Pids of this node's agents that have no sandbox yet: children of its launcher without a root of their own. */
function waiting(rig: ContainerRig): ReadonlySet<number> {
  const launchers = childrenOf(process.pid).filter((pid) => commandOf(pid).includes(rig.options.binaries.cradle));
  return new Set(
    launchers.flatMap(childrenOf).filter((pid) => commandOf(pid).startsWith("dsec-agent\0--blank\0") && !hasRoot(pid)),
  );
}

/** Whether the agent was given a sandbox. */
function hasRoot(pid: number): boolean {
  return /overlay/.test(readFileSync(`/proc/${pid}/mountinfo`, "utf8"));
}

function childrenOf(pid: number): readonly number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);
}

function commandOf(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, "latin1");
}
