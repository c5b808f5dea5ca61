import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { differMore } from "#core/pixels.ts";
import { DsecError, type Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { decodePng } from "./png.ts";
import { createComputer, described, memtestShows, pictureOtherThan } from "./screen.ts";
import {
  answers,
  COUNTER,
  createSystem,
  dirOf,
  forked,
  instantsOf,
  monitorOf,
  nothingIsLeft,
  runDirOf,
  START_MS,
  skip,
  startNodeWithSystem,
  untilLost,
} from "./system.ts";

/** All that must not be the same in two systems of one instant. */
const IDENTITY = "hostname; cat /proc/sys/kernel/random/boot_id /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1";

describe("snapshots of full VMs with memory", { timeout: 2_400_000, skip }, () => {
  let node: TestNode;
  let parent: Sandbox;
  before(
    async () => {
      node = await startNodeWithSystem();
      parent = await createSystem(node);
    },
    { timeout: START_MS },
  );
  after(() => node[Symbol.asyncDispose]());

  const use = (id: string) => node.client.sandboxes.use(id);
  const picture = async ({ computer }: Sandbox) => decodePng((await computer.screenshot()).png);
  const labelled = (of: string) => Array.fromAsync(node.client.sandboxes.list({ labels: { of } }));

  /** Of the parent, unless said otherwise. It goes with the stack, whatever node there is by then. */
  async function snapshot(stack: AsyncDisposableStack, of: Sandbox = parent): Promise<Sandbox> {
    const { forks } = await of.fork({ count: 1, paused: true });
    assert.ok(forks[0] !== undefined && "sandbox" in forks[0]);
    const { id, view } = forks[0].sandbox;
    stack.defer(() => use(id)[Symbol.asyncDispose]());
    assert.equal(view?.state, "paused");
    return use(id);
  }

  async function restart(): Promise<void> {
    await node.kill();
    await node.start();
    parent = use(parent.id);
  }

  test("one outlives its sandbox and its node, takes nothing but disk, and others go on from it, each as itself", async () => {
    await using stack = new AsyncDisposableStack();
    const child = await createSystem(node);
    await output(child, "echo kept >/root/file");
    await child.computer.type("clear; echo shown before it was kept\n");
    const shown = decodePng((await child.computer.screenshot({ settledMs: 500, waitMs: 50_000 })).png);
    const command = await child.start(COUNTER);
    const kept = await snapshot(stack, child);
    assert.deepEqual([(await kept.info()).parent, (await child.info()).state], [child.id, "ready"]);
    await child.remove();
    assert.ok(!existsSync(join(runDirOf(node, kept), "vmm.json")), "nothing of it ran");
    await parent.pause();
    const counts = await node.client.nodes.resources(node.marks.edge);
    assert.deepEqual(
      counts.filter(({ expected, found }) => expected !== found),
      [],
    );
    assert.equal(counts.find((one) => one.class === "processes")?.found, 0);
    await restart();
    const forks = await forked(stack, use(kept.id).fork({ count: 2 }));
    assert.equal((await use(kept.id).info()).state, "paused", "what others begin with stays as it is");
    // It may go on itself, too.
    const all = [...forks, use(kept.id)];
    for (const one of all) assert.equal(differMore(shown, await picture(one), 0.001), false, "it shows the same");
    const said = [];
    for (const one of all) {
      assert.equal(await output(one, "cat /root/file"), "kept");
      said.push((await output(one, IDENTITY)).split("\n"));
      assert.equal(said.at(-1)?.[0], one.id);
      const clock = Number(await output(one, "date +%s"));
      assert.ok(Math.abs(clock - Date.now() / 1_000) < 120, `its clock says ${clock}`);
      await one.command(command.id).signal("SIGKILL");
      const numbers = (await one.command(command.id).result()).stdoutText.trimEnd().split("\n");
      assert.deepEqual(numbers, [...numbers.keys()].map(String), "no line is lost, none comes twice");
    }
    for (const at of [0, 1, 2, 3]) assert.equal(new Set(said.map((lines) => lines[at])).size, 3, JSON.stringify(said));
    await nothingIsLeft(node);
  });

  test("one that does not fit is refused with the reason, and its disk is there without its memory", async () => {
    await using stack = new AsyncDisposableStack();
    const command = await parent.start(COUNTER);
    await output(parent, "echo not synced >/root/file");
    const kept = await snapshot(stack);
    await parent.command(command.id).signal("SIGKILL");
    const record = join(dirOf(node, kept), "saved.json");
    const saved = JSON.parse(readFileSync(record, "utf8"));
    for (const [changed, reason] of [
      [{ identity: "qemu 1.0 another computer" }, /does not fit this node: it was qemu 1\.0 another computer/],
      [{ devices: "0".repeat(64) }, /damaged/],
      [{ version: 2 }, /has version 2/],
    ] as const) {
      writeFileSync(record, JSON.stringify({ ...saved, ...changed }));
      const { forks } = await kept.fork({ count: 1 });
      assert.ok(forks[0] !== undefined && "error" in forks[0] && forks[0].error instanceof DsecError);
      const { kind, message, hint } = forks[0].error;
      assert.equal(kind, "FailedPrecondition");
      assert.match(message, reason);
      assert.match(String(hint), /without its memory/);
      await refused(kept.run("true"), "FailedPrecondition", reason);
      await nothingIsLeft(node);
    }
    const [files] = await forked(stack, kept.fork({ count: 1, memory: false }));
    assert.ok(files !== undefined);
    await answers(files);
    assert.equal(await output(files, "cat /root/file; hostname"), `not synced\n${files.id}`);
    await refused(files.command(command.id).info(), "NotFound");
    writeFileSync(record, JSON.stringify(saved));
    assert.equal(await output(kept, "cat /root/file; hostname"), `not synced\n${kept.id}`);
  });

  test("of one that is off there is one that is off; of one whose monitor is lost, the disk alone", async () => {
    await using stack = new AsyncDisposableStack();
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(child !== undefined);
    await output(child, "echo kept >/root/off; sync");
    await child.run("poweroff").catch(() => undefined);
    await waitUntil("it is off", START_MS, async () => (await child.computer.info()).power === "off");
    const kept = await snapshot(stack, child);
    const [copy] = await forked(stack, kept.fork({ count: 1 }));
    assert.ok(copy !== undefined);
    // Its agent was never reached, and has still to hear who it is.
    await copy.pause();
    for (const one of [copy, kept]) {
      assert.equal((await one.computer.info()).power, "off");
      await one.computer.power("on");
      await answers(one);
      assert.equal(await output(one, "cat /root/off; cat /etc/hostname"), `kept\n${one.id}`);
    }
    process.kill(monitorOf(node, kept), "SIGKILL");
    await untilLost(kept);
    const { forks } = await kept.fork({ count: 1, paused: true });
    assert.match(String(forks[0] !== undefined && "error" in forks[0] && forks[0].error.message), /memory with it/);
    await nothingIsLeft(node);
    const [files] = await forked(stack, kept.fork({ count: 1, memory: false }));
    assert.ok(files !== undefined);
    await answers(files);
    assert.equal(await output(files, "cat /root/off"), "kept");
  });

  test("a system without an agent: copies go on from it, and it does itself", async () => {
    await using stack = new AsyncDisposableStack();
    const computer = stack.use(await createComputer(node));
    await memtestShows(computer);
    const kept = await snapshot(stack, computer);
    await computer.remove();
    const forks = await forked(stack, kept.fork({ count: 2 }));
    for (const one of [...forks, kept]) {
      const { png } = await one.computer.screenshot();
      assert.deepEqual([described(png).width, described(png).height], [720, 400], "it is in the middle of its test");
      await pictureOtherThan(one, described(png).digest);
    }
    const [anew] = await forked(stack, kept.fork({ count: 1, memory: false }));
    assert.ok(anew !== undefined);
    await memtestShows(anew);
  });

  test("nodes that are killed at each point of it leave a computer that goes on, and no half of a snapshot", async () => {
    const saved = (dir: string) => existsSync(dir) && readdirSync(dir).some((one) => isThere(join(dir, one)));
    const isThere = (dir: string) => existsSync(join(dir, "saved.json"));
    const childOf = async () => (await labelled("killed").catch(() => []))[0];
    for (const [point, reached] of [
      ["held", () => existsSync(join(runDirOf(node, parent), "held"))],
      ["its instant is whole", () => saved(instantsOf(node))],
      [
        "its own files begin",
        async () => {
          const child = await childOf();
          return child !== undefined && existsSync(join(dirOf(node, child), "memory"));
        },
      ],
      [
        "its own files are whole",
        async () => {
          const child = await childOf();
          return child !== undefined && isThere(dirOf(node, child));
        },
      ],
    ] as const) {
      const forking = parent.fork({ count: 1, paused: true, labels: { of: "killed" } }).catch(() => undefined);
      await waitUntil(point, START_MS, reached);
      await restart();
      await forking;
      assert.equal(await output(parent, "echo alive"), "alive", point);
      for (const child of await labelled("killed")) {
        assert.equal(child.state, "paused", point);
        assert.equal(await output(use(child.id), "hostname"), child.id, point);
        await use(child.id).remove();
      }
      await nothingIsLeft(node);
    }
  });

  test("nodes that are killed while it goes on let it go on, as itself", async () => {
    await using stack = new AsyncDisposableStack();
    for (const [point, reached] of [
      ["its monitor is there", (kept: Sandbox) => existsSync(join(runDirOf(node, kept), "vmm.json"))],
      ["nothing is saved any more", (kept: Sandbox) => !existsSync(join(dirOf(node, kept), "saved.json"))],
    ] as const) {
      const { id } = await snapshot(stack);
      const resuming = use(id)
        .resume()
        .catch(() => undefined);
      await waitUntil(point, START_MS, () => reached(use(id)));
      await restart();
      await resuming;
      assert.equal(await output(use(id), "hostname; cat /etc/hostname"), `${id}\n${id}`, point);
      await use(id).remove();
    }
    await nothingIsLeft(node);
  });

  test("it is removed in every state, and nothing is left", async () => {
    const removed = { of: "removed" };
    const only = async () => {
      const [found] = await labelled("removed");
      return found === undefined ? undefined : use(found.id);
    };
    for (const state of ["creating", "paused", "resuming", "ready"]) {
      const forking = parent.fork({ count: 1, paused: true, labels: removed }).catch(() => undefined);
      if (state !== "creating") await forking;
      await waitUntil("it is there", START_MS, async () => (await only()) !== undefined);
      const made = await only();
      assert.ok(made !== undefined);
      const resuming = state === "resuming" || state === "ready" ? made.resume().catch(() => undefined) : undefined;
      if (state === "ready") await resuming;
      await made.remove();
      await Promise.all([forking, resuming]);
      assert.deepEqual(await labelled("removed"), [], state);
      await nothingIsLeft(node);
    }
    assert.equal(await output(parent, "echo alive"), "alive");
  });

  test("dsec makes them", async () => {
    const said = await dsec(node, ["fork", parent.id, "--paused", "--label", "of=dsec"]);
    assert.equal(said.status, 0, said.stderr);
    await using kept = use(said.stdout.trim());
    assert.equal((await kept.info()).state, "paused");
    const files = await dsec(node, ["fork", kept.id, "--files-only"]);
    assert.equal(files.status, 0, files.stderr);
    await using copy = use(files.stdout.trim());
    await answers(copy);
    await refused(parent.fork({ count: 1, paused: true, memory: false }), "InvalidArgument", /paused/);
  });

  test("a full volume refuses it by its type, leaves nothing, and holds up nobody", async () => {
    await using small = await startNodeWithSystem({ words: ["--vm-volume-size=256MiB"] });
    const sandbox = await createSystem(small);
    // Its own disk takes what there is: it hears of that as of a broken disk.
    await sandbox.run("dd if=/dev/urandom of=/big bs=1M count=200; sync", { timeLimitMs: START_MS });
    await refused(sandbox.fork({ count: 1, paused: true }), "StorageFull");
    assert.equal(await output(sandbox, "echo alive"), "alive");
    assert.equal((await sandbox.computer.info()).power, "on");
    assert.equal((await Array.fromAsync(small.client.sandboxes.list())).length, 1);
    await nothingIsLeft(small);
  });
});
