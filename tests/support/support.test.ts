import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { findTraces, goesWithItsLastUser, type Marks, remainingTraces } from "./marks.ts";
import { sweep } from "./sweep.ts";
import { waitUntil } from "./wait.ts";

const NOTHING = { processes: [], cgroups: [], mounts: [], loopDevices: [] };

function newMarks(): Marks {
  return { edge: `x${process.pid}`, folder: mkdtempSync(join(tmpdir(), "dsec-marks-")) };
}

function run(command: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
}

describe("the leak check", () => {
  test("finds nothing of a node that never was", (t) => {
    const marks = newMarks();
    t.after(() => rmSync(marks.folder, { recursive: true }));
    assert.deepEqual(findTraces(marks), NOTHING);
  });

  test("finds a process, a cgroup, a mount and a loop device, and the sweep removes all of them", async () => {
    const marks = newMarks();
    const { folder, edge } = marks;
    mkdirSync(join(folder, "mount"));
    mkdirSync(join(folder, "looped"));
    writeFileSync(join(folder, "image"), Buffer.alloc(16 << 20));
    run("mount", "-t", "tmpfs", "none", join(folder, "mount"));
    run("mkfs.ext4", "-q", join(folder, "image"));
    run("mount", "-o", "loop", join(folder, "image"), join(folder, "looped"));
    const parent = existsSync("/sys/fs/cgroup/pids") ? "/sys/fs/cgroup/pids/dsec" : "/sys/fs/cgroup/dsec";
    const cgroup = `${parent}/${edge}/s${edge}-a`;
    const filler = `${parent}/${edge}.filler`;
    for (const folder of [cgroup, filler]) mkdirSync(folder, { recursive: true });
    const child = spawn("sleep", ["60"], { env: { ...process.env, DSEC_DATA_DIR: folder }, stdio: "ignore" });
    await once(child, "spawn");

    const found = findTraces(marks);
    assert.deepEqual(found.processes, [`${child.pid} sleep 60`]);
    assert.deepEqual(found.cgroups, [cgroup, `${parent}/${edge}`, filler]);
    assert.deepEqual(found.mounts, [join(folder, "mount"), join(folder, "looped")]);
    assert.equal(found.loopDevices.length, 1);

    await sweep(marks);
    assert.deepEqual(findTraces(marks), NOTHING);
  });

  for (const [who, hold] of [
    ["somebody else's mount namespace", ["unshare", "--mount", "sh", "-c", "echo held; exec sleep 60"]],
    ["somebody without a mount of it", ["sh", "-c", 'exec 3<"$1"; echo held; exec sleep 60', "sh"]],
  ] as const) {
    test(`knows a loop device that ${who} holds, and waits for its end`, () => heldBy(hold));
  }

  async function heldBy([program, ...words]: readonly [string, ...string[]]): Promise<void> {
    const marks = newMarks();
    const { folder } = marks;
    mkdirSync(join(folder, "looped"));
    writeFileSync(join(folder, "image"), Buffer.alloc(16 << 20));
    run("mkfs.ext4", "-q", join(folder, "image"));
    run("mount", "-o", "loop", join(folder, "image"), join(folder, "looped"));
    const holder = spawn(program, [...words, `/dev/${findTraces(marks).loopDevices[0]}`]);
    await once(holder.stdout, "data");
    run("umount", join(folder, "looped"));

    const held = findTraces(marks).loopDevices;
    assert.deepEqual([held.length, held.every(goesWithItsLastUser)], [1, true]);
    holder.kill();
    assert.deepEqual(await remainingTraces(marks), NOTHING);
    rmSync(folder, { recursive: true });
  }
});

test("waitUntil names what did not come", async () => {
  await assert.rejects(
    waitUntil("the sun rises", 30, () => false),
    /not within 30 ms: the sun rises/,
  );
});
