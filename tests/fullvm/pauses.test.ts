import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { differMore } from "#core/pixels.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { decodePng } from "./png.ts";
import { createComputer, described, memtestShows, pictureOtherThan } from "./screen.ts";
import { answers, createSystem, dirOf, monitorOf, runDirOf, START_MS, skip, startNodeWithSystem } from "./system.ts";

const LONG_AGO_S = 1_000_000_000;

describe("full VMs that are paused", { timeout: 1_800_000, skip }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(
    async () => {
      node = await startNodeWithSystem();
      sandbox = await createSystem(node);
    },
    { timeout: START_MS },
  );
  after(() => node[Symbol.asyncDispose]());

  const again = () => {
    sandbox = node.client.sandboxes.use(sandbox.id);
  };

  test("what runs goes on, as often as it is paused, with the time of now; the monitor is gone meanwhile", async () => {
    await using session = await sandbox.session();
    await session.run("shown=kept");
    const command = await sandbox.start("i=0; while true; do i=$((i+1)); echo $i >/tmp/count; sleep 1; done");
    for (const round of ["first", "second", "third"]) {
      await output(sandbox, `date -s @${LONG_AGO_S}`);
      const counted = Number(await output(sandbox, "cat /tmp/count || echo 0"));
      const pid = monitorOf(node, sandbox);
      await sandbox.pause();
      assert.equal((await sandbox.info()).state, "paused", round);
      assert.ok(!existsSync(`/proc/${pid}`), "the monitor has ended");
      await sandbox.pause();
      // A command resumes it.
      const now = Number(await output(sandbox, "date +%s"));
      assert.ok(Math.abs(now - Date.now() / 1_000) < 120, `${round}: its clock says ${now}`);
      assert.equal((await sandbox.info()).state, "ready");
      await waitUntil("it counts on", START_MS, async () => Number(await output(sandbox, "cat /tmp/count")) > counted);
    }
    assert.equal((await session.run("echo $shown")).stdoutText, "kept\n");
    await command.signal("SIGKILL");
    assert.equal((await command.wait()).status?.signal, "SIGKILL");
    const held = await node.client.nodes.resources(node.marks.edge);
    assert.deepEqual(
      held.filter(({ surplus, expected, found }) => surplus.length > 0 || expected !== found),
      [],
    );
  });

  test("its screen shows what it showed", async () => {
    await sandbox.computer.type("clear; echo shown on the screen\n");
    const before = await sandbox.computer.screenshot({ settledMs: 1_000 });
    await sandbox.pause();
    const after = await sandbox.computer.screenshot();
    assert.equal(differMore(decodePng(before.png), decodePng(after.png), 0.002), false);
    const blank = await createComputer(node);
    assert.ok(differMore(decodePng(before.png), decodePng((await blank.computer.screenshot()).png), 0.002));
    await blank.remove();
    await sandbox.computer.type("echo typed >/root/typed\n");
    await waitUntil("its keyboard works", START_MS, async () => (await sandbox.run("cat /root/typed")).ok);
  });

  test("nodes that are killed, before a pause and at each point of it, leave a computer that goes on", async () => {
    const command = await sandbox.start("sleep 100000");
    await node.kill();
    await node.start();
    again();
    await sandbox.pause();
    assert.equal(await output(sandbox, "ps | grep -c '[s]leep 100000'"), "1");
    for (const [point, path] of [
      ["held", () => join(runDirOf(node, sandbox), "held")],
      ["its memory is written", () => join(dirOf(node, sandbox), "memory")],
      ["saved", () => join(dirOf(node, sandbox), "saved.json")],
    ] as const) {
      const pausing = sandbox.pause().catch(() => undefined);
      await waitUntil(point, START_MS, () => existsSync(path()));
      await node.kill();
      await pausing;
      await node.start();
      again();
      assert.equal(await output(sandbox, "ps | grep -c '[s]leep 100000'"), "1", point);
    }
    await sandbox.command(command.id).signal("SIGKILL");
    await sandbox.command(command.id).wait();
  });

  test("a host that is started anew in a pause has lost what it knew of the run: what ran goes on all the same", async () => {
    const command = await sandbox.start("sleep 100000");
    await sandbox.pause();
    await node.kill();
    rmSync(runDirOf(node, sandbox), { recursive: true });
    await node.start();
    again();
    assert.equal(await output(sandbox, "ps | grep -c '[s]leep 100000'"), "1");
    assert.equal((await sandbox.command(command.id).info()).status, undefined);
    await sandbox.command(command.id).signal("SIGKILL");
    assert.equal((await sandbox.command(command.id).wait()).status?.signal, "SIGKILL");
  });

  test("what is damaged is refused with the reason, and stays as it is", async () => {
    await sandbox.pause();
    const path = join(dirOf(node, sandbox), "devices");
    const devices = readFileSync(path);
    writeFileSync(path, Buffer.concat([devices.subarray(0, -1), Buffer.from([(devices.at(-1) ?? 0) ^ 1])]));
    await refused(sandbox.run("true"), "FailedPrecondition", /damaged/);
    assert.equal((await sandbox.info()).state, "paused");
    writeFileSync(path, devices);
    assert.equal(await output(sandbox, "cat /root/typed"), "typed");
  });

  test("one that is off stays off; one that is paused is removed as any", async () => {
    await sandbox.run("poweroff").catch(() => undefined);
    await waitUntil("it is off", START_MS, async () => (await sandbox.computer.info()).power === "off");
    await sandbox.pause();
    assert.equal((await sandbox.computer.info()).power, "off");
    await sandbox.pause();
    await sandbox.computer.power("on");
    await answers(sandbox);
    await sandbox.pause();
    await sandbox.remove();
    assert.ok(!existsSync(dirOf(node, sandbox)) && !existsSync(runDirOf(node, sandbox)));
  });

  test("a system without an agent goes on, and shows and hears; by UEFI too", async () => {
    for (const request of [{}, { computer: { firmware: "uefi", devices: "virtio" }, resources: { memoryMiB: 128 } }]) {
      await using computer = await createComputer(node, request as Parameters<typeof createComputer>[1]);
      if (!("computer" in request)) await memtestShows(computer);
      await computer.pause();
      const { png } = await computer.computer.screenshot();
      await pictureOtherThan(computer, described(png).digest);
      assert.equal((await computer.computer.info()).power, "on");
      await computer.computer.press(["f1"]);
    }
  });
});
