import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { DsecError, type Forks, type Sandbox } from "#sdk";
import { dsec } from "../../support/cli.ts";
import type { TestNode } from "../../support/node.ts";
import { create, output, refused } from "../../support/sandbox.ts";
import { MICROVM } from "./backend.ts";

const COUNTER = "i=0; while :; do echo $i >/count; i=$((i+1)); sleep 0.05; done";
const IDENTITY = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id";

describe("snapshots of microVMs with memory", { timeout: 1_200_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  const use = (id: string) => node.client.sandboxes.use(id);

  async function made(forks: Promise<Forks>): Promise<readonly Sandbox[]> {
    return (await forks).forks.map((fork) => {
      assert.ok("sandbox" in fork, "error" in fork ? fork.error.message : "");
      return fork.sandbox;
    });
  }

  /** With a command that runs, its id. */
  async function snapshot(): Promise<{ readonly id: string; readonly command: string }> {
    await using parent = await MICROVM.create(node);
    const counter = await parent.start(COUNTER);
    await output(parent, "echo kept >/file; until [ -s /count ]; do sleep 0.05; done");
    const [kept] = await made(parent.fork({ count: 1, paused: true, labels: { snapshot: "one" } }));
    assert.equal(kept?.view?.state, "paused");
    return { id: kept.id, command: counter.id };
  }

  async function goesOn(sandbox: Sandbox, command: string): Promise<void> {
    const before = Number(await output(sandbox, "cat /count"));
    await output(sandbox, `until [ "$(cat /count)" -gt ${before} ]; do sleep 0.05; done`);
    assert.equal((await sandbox.command(command).info()).status, undefined);
  }

  test("one outlives its sandbox and its node, takes nothing but disk, and others go on from it, each as itself", async () => {
    const { id, command } = await snapshot();
    const counts = await node.client.nodes.resources(node.marks.edge);
    assert.deepEqual(
      counts.filter(({ expected, found }) => expected !== found),
      [],
    );
    assert.equal(counts.find((one) => one.class === "processes")?.found, 0);
    await node.kill();
    await node.start();
    const forks = await made(use(id).fork({ count: 2 }));
    for (const fork of forks) await goesOn(fork, command);
    const listed = await Array.fromAsync(node.client.sandboxes.list({ labels: { snapshot: "one" } }));
    const found = listed.find((one) => one.id === id);
    assert.equal(found?.state, "paused", "what others begin with stays as it is");
    const identities = await Promise.all(forks.map((fork) => output(fork, IDENTITY)));
    // It may go on itself, too.
    await goesOn(use(id), command);
    identities.push(await output(use(id), IDENTITY));
    const lines = identities.flatMap((one) => one.split("\n"));
    assert.equal(new Set(lines).size, lines.length, "none is who another is");
    assert.ok(identities.at(-1)?.startsWith(id));
    for (const one of [...forks, use(id)]) await one.remove();
  });

  test("one that does not fit is refused with the reason, and its files are there without its memory", async () => {
    const { id, command } = await snapshot();
    const record = join(node.runDir, "machine-disks/volume", id, "upper/saved.json");
    const saved = JSON.parse(readFileSync(record, "utf8"));
    writeFileSync(record, JSON.stringify({ ...saved, identity: "qemu 1.0 another processor" }));
    const { forks } = await use(id).fork({ count: 1 });
    assert.ok(forks[0] !== undefined && "error" in forks[0] && forks[0].error instanceof DsecError);
    const { kind, message, hint } = forks[0].error;
    assert.equal(kind, "FailedPrecondition");
    assert.match(message, /does not fit this node: it was qemu 1\.0 another processor/);
    assert.match(String(hint), /without its memory/);
    await refused(use(id).run("true"), "FailedPrecondition", /does not fit/);
    for (const { surplus } of await node.client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
    const [files] = await made(use(id).fork({ count: 1, memory: false }));
    assert.ok(files);
    assert.equal(await output(files, "cat /file"), "kept");
    await assert.rejects(files.command(command).info(), { kind: "NotFound" });
    writeFileSync(record, JSON.stringify({ ...saved, devices: "0".repeat(64) }));
    const { forks: damaged } = await use(id).fork({ count: 1 });
    assert.match(String(damaged[0] !== undefined && "error" in damaged[0] && damaged[0].error.message), /damaged/);
    for (const one of [files, use(id)]) await one.remove();
  });

  test("dsec makes them, and what cannot be kept is refused by name", async () => {
    await using parent = await MICROVM.create(node);
    await output(parent, "echo kept >/file");
    const said = await dsec(node, ["fork", parent.id, "--paused", "--label", "snapshot=two"]);
    assert.equal(said.status, 0, said.stderr);
    await using kept = use(said.stdout.trim());
    assert.equal((await kept.info()).state, "paused");
    const files = await dsec(node, ["fork", kept.id, "--files-only"]);
    assert.equal(files.status, 0, files.stderr);
    await using copy = use(files.stdout.trim());
    assert.equal(await output(copy, "cat /file"), "kept");
    await refused(parent.fork({ count: 1, paused: true, memory: false }), "InvalidArgument", /paused/);
    await using container = await create(node, {});
    await refused(container.fork({ count: 1, paused: true }), "FailedPrecondition", /container/);
    await parent.remove();
    const counts = await node.client.nodes.resources(node.marks.edge);
    assert.deepEqual(
      counts.filter(({ surplus }) => surplus.length > 0),
      [],
    );
  });
});
