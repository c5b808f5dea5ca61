import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { run } from "#core/suites/backend-suite.ts";
import { openCgroups } from "#host/cgroup/cgroups.ts";
import { type ContainerRig, containerRig } from "./test-support/rig.ts";

const soon = () => AbortSignal.timeout(30_000);

let rig: ContainerRig;
before(async () => {
  rig = await containerRig();
});
after(() => rig[Symbol.asyncDispose]());

/** The launcher is the child of this process that runs its program. */
function launcherPid(): number {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim().split(" ");
  const found = children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("dsec-cradle"));
  return Number(found ?? assert.fail("no launcher"));
}

test("a launcher that was killed is followed by another, and its sandboxes go on", async () => {
  const handle = await rig.backend.create(rig.spec(), { slot: 0 }, soon());
  process.kill(launcherPid(), "SIGKILL");
  // The first create may still meet the dying one.
  const next = rig.spec();
  const create = () => rig.backend.create(next, { slot: 1 }, soon());
  const made = await create().catch((error: unknown) => {
    assert.ok(error instanceof SandboxError && error.kind === "Unavailable", String(error));
    return create();
  });
  for (const live of [handle, made]) {
    const link = await rig.backend.connect(live, soon());
    assert.deepEqual(await run(link, ["echo", "alive"]), { stdout: "alive\n", code: 0 });
    link.close();
    await rig.backend.destroy(live.id);
  }
  assert.ok(Object.values(await rig.backend.inventory()).every((ids) => ids.size === 0));
});

test("creates that a killed launcher took along leave nothing, and the others succeed", async () => {
  await rig.backend.destroy((await rig.backend.create(rig.spec(), { slot: 0 }, soon())).id);
  let rejected = 0;
  for (let round = 0; round < 5; round += 1) {
    // Heard from the start: the launcher of the round before may take some of them along.
    const creates = Promise.allSettled(
      Array.from({ length: 16 }, (_, slot) => rig.backend.create(rig.spec(), { slot }, soon())),
    );
    await new Promise((resolve) => setTimeout(resolve, 3 * round));
    process.kill(launcherPid(), "SIGKILL");
    const outcomes = await creates;
    const made = outcomes.filter((outcome) => outcome.status === "fulfilled").map(({ value }) => value);
    for (const outcome of outcomes) {
      if (outcome.status === "fulfilled") continue;
      assert.equal(outcome.reason.kind, "Unavailable");
      rejected += 1;
    }
    const inventory = await rig.backend.inventory();
    const ids = new Set<string>(made.map(({ id }) => id));
    for (const [name, found] of Object.entries(inventory)) {
      assert.deepEqual(
        [...found].filter((id) => !ids.has(id)),
        [],
        `${name} in round ${round}`,
      );
    }
    await Promise.all(made.map(({ id }) => rig.backend.destroy(id)));
  }
  assert.ok(rejected > 0, "no create was hit");
});

test("a node waits for the launcher of the one before it", async () => {
  const { agentDirs } = await openCgroups(rig.edge);

  const straggler = spawn("sleep", ["100"], { stdio: "ignore" });
  for (const dir of agentDirs) writeFileSync(`${dir}/cgroup.procs`, String(straggler.pid));
  let opened = false;
  const restarting = rig.restart().then(() => {
    opened = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(opened, false);
  straggler.kill("SIGKILL");
  await restarting;
});
