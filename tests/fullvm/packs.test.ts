import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { PackOptions, Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { createComputer } from "./screen.ts";
import {
  createSystem,
  GUEST_DIR,
  IMAGE,
  nothingIsLeft,
  START_MS,
  skip,
  startNodeWithSystem,
  untilLost,
} from "./system.ts";

const MIB = 1024 * 1024;
const WHOLE: Pick<PackOptions, "keep"> = { keep: ["credentials", "history"] };

describe("full VMs that are packed", { timeout: 1_800_000, skip }, () => {
  let shared: string;
  let node: TestNode;
  let other: TestNode;
  let sandbox: Sandbox;
  before(
    async () => {
      shared = mkdtempSync(join(tmpdir(), "dsec-shared-"));
      const store = `--store=${shared}`;
      node = await startNodeWithSystem({ words: [store] });
      other = await startNode({ words: ["--accelerator=tcg", `--guest-dir=${GUEST_DIR}`, store] });
      sandbox = await createSystem(node);
    },
    { timeout: START_MS },
  );
  after(async () => {
    await other[Symbol.asyncDispose]();
    await node[Symbol.asyncDispose]();
    rmSync(shared, { recursive: true });
  });

  test("what was installed at the screen starts on another node, as often as it is packed", async () => {
    const before = await node.client.artifacts.info(IMAGE);
    await sandbox.computer.type("printf '#!/bin/sh\\necho installed\\n' >/usr/bin/tool; chmod 755 /usr/bin/tool\n");
    await waitUntil("it is typed", START_MS, async () => (await sandbox.run("tool")).ok);
    await output(sandbox, "dd if=/dev/urandom of=/data bs=1M count=8 2>/dev/null; md5sum </data >/sum");
    const packed = await sandbox.packDiff({ name: "installed:v1", ...WHOLE, labels: { by: "hand" } });
    assert.deepEqual([packed.artifact.kind, packed.artifact.labels], ["vm-image", { by: "hand" }]);
    assert.deepEqual(packed.artifact.config.computer, before.config.computer);
    assert.deepEqual(packed.artifact.parents, [before.digest]);
    assert.equal(packed.artifact.layers.length, 1);
    assert.equal(await output(sandbox, "tool"), "installed");
    await nothingIsLeft(node);
    await node.client.artifacts.push("installed:v1");
    const second = await createSystem(other, { base: "installed:v1" });
    assert.equal(await output(second, "tool; md5sum </data | cmp - /sum && echo whole"), "installed\nwhole");
    await output(second, "echo more >/more; rm /data");
    const again = await dsec(other, ["pack", second.id, "installed:v2", "--keep", "credentials", "--keep", "history"]);
    assert.deepEqual([again.status, again.stdout], [0, "installed:v2\n"], again.stderr);
    await other.client.artifacts.push("installed:v2");
    await second.remove();
    const third = await createSystem(node, { base: "installed:v2" });
    assert.equal(await output(third, "tool; cat /more; ls /data 2>/dev/null || echo gone"), "installed\nmore\ngone");
    await third.remove();
    assert.equal(await output(sandbox, "ls /more 2>/dev/null || echo own"), "own");
  });

  test("the store has what the image had once", async () => {
    const storedBytes = () => {
      const folder = join(node.dataDir, "images");
      const names = readdirSync(folder, { recursive: true, withFileTypes: true });
      return names
        .filter((entry) => entry.isFile())
        .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
    };
    const before = storedBytes();
    await output(sandbox, "dd if=/dev/urandom of=/own bs=1M count=2 2>/dev/null");
    const { artifact, bytes } = await sandbox.packDiff({ name: "own:v1", ...WHOLE });
    assert.equal(bytes, 256 * MIB, "it is the whole disk");
    const added = storedBytes() - before;
    assert.ok(added >= 2 * MIB && added < 24 * MIB, `${added} bytes for 2 MiB of changes of ${artifact.sizeBytes}`);
  });

  test("what a disk cannot leave out is refused by name, and a CD has no disk", async () => {
    await refused(sandbox.packDiff({ name: "x" }), "FailedPrecondition", /credentials and history/);
    await refused(sandbox.packDiff({ name: "x", keep: ["history"] }), "FailedPrecondition", /credentials/);
    await refused(sandbox.packDiff({ name: "x", ...WHOLE, exclude: ["/tmp"] }), "FailedPrecondition", /excluded/);
    await refused(sandbox.packDiff({ name: "x", ...WHOLE, consistent: false }), "FailedPrecondition", /held still/);
    await using computer = await createComputer(node);
    await refused(computer.packDiff({ name: "x", ...WHOLE }), "FailedPrecondition", /no disk/);
    await refused(node.client.artifacts.info("x"), "NotFound");
    await nothingIsLeft(node);
  });

  test("what the firmware has kept comes along, and a copy begins with that", async () => {
    const request = {
      computer: { firmware: "uefi", devices: "virtio" },
      resources: { memoryMiB: 128, diskMiB: 16 },
    } as const;
    await using computer = await createComputer(node, request);
    const variables = (of: Sandbox) =>
      readFileSync(join(node.runDir, "computer-disks/volume", of.id, "upper/variables"));
    const { artifact, entries } = await computer.packDiff({ name: "firmware", ...WHOLE });
    assert.deepEqual([artifact.config.computer, entries], [{ firmware: "uefi", devices: "virtio" }, 2]);
    await using again = await node.client.sandboxes.create({ base: "firmware", resources: { memoryMiB: 128 } });
    assert.equal((await again.computer.info()).power, "on");
    assert.equal(variables(again).length, variables(computer).length);
  });

  test("one that is paused is resumed to be packed; one that is off, and one whose monitor is lost, have their disks", async () => {
    await output(sandbox, "echo late >/late");
    await sandbox.pause();
    await sandbox.packDiff({ name: "late:paused", ...WHOLE });
    await sandbox.run("poweroff").catch(() => undefined);
    await waitUntil("it is off", START_MS, async () => (await sandbox.computer.info()).power === "off");
    const off = await sandbox.packDiff({ name: "late:off", ...WHOLE });
    const { pid } = JSON.parse(readFileSync(join(node.runDir, "computers", sandbox.id, "vmm.json"), "utf8")) as {
      pid: number;
    };
    process.kill(pid, "SIGKILL");
    await untilLost(sandbox);
    const lost = await sandbox.packDiff({ name: "late:lost", ...WHOLE });
    assert.equal(lost.layer, off.layer, "the same disk is the same image");
    await nothingIsLeft(node);
    const copy = await createSystem(node, { base: "late:paused" });
    assert.equal(await output(copy, "cat /late"), "late");
    await copy.remove();
  });
});
