import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { differMore } from "#core/pixels.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { decodePng } from "./png.ts";
import { createComputer, described, memtestShows, pictureOtherThan } from "./screen.ts";
import {
  answers,
  COUNTER,
  createSystem,
  forked,
  monitorOf,
  nothingIsLeft,
  runDirOf,
  START_MS,
  skip,
  startNodeWithSystem,
  untilLost,
} from "./system.ts";

/** All that must not be the same in two systems of one instant. */
const IDENTITY =
  "cat /proc/sys/kernel/random/boot_id /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; hostname; cat /etc/hostname";
/** So much of a screen is what a line of text on it changes, and more than a cursor that blinks. */
const A_LINE = 0.0008;

describe("full VMs that are forked", { timeout: 1_800_000, skip }, () => {
  let node: TestNode;
  let parent: Sandbox;
  before(
    async () => {
      node = await startNodeWithSystem();
      parent = await createSystem(node, { labels: { a: "1" } });
    },
    { timeout: START_MS },
  );
  after(() => node[Symbol.asyncDispose]());

  const picture = async ({ computer }: Sandbox) =>
    decodePng((await computer.screenshot({ settledMs: 500, waitMs: 50_000 })).png);

  test("what runs goes on in each copy, by itself, under a name and ids of its own", async () => {
    await using stack = new AsyncDisposableStack();
    const session = await parent.session({ name: "kept" });
    await session.run("there=1; cd /tmp; echo before >file; exec 7<file");
    const counter = await parent.start(COUNTER);
    const ended = await parent.start("echo over");
    await ended.result();
    const before = (await output(parent, IDENTITY)).split("\n");
    const forks = await forked(stack, parent.fork({ count: 3, labels: { b: "2" } }));
    await nothingIsLeft(node);
    const said = [(await output(parent, IDENTITY)).split("\n")];
    for (const fork of forks) {
      assert.deepEqual([fork.view?.parent, fork.view?.labels], [parent.id, { a: "1", b: "2" }]);
      said.push((await output(fork, IDENTITY)).split("\n"));
      assert.equal(said.at(-1)?.[3], fork.id);
      const clock = Number(await output(fork, "date +%s"));
      assert.ok(Math.abs(clock - Date.now() / 1_000) < 120, `its clock says ${clock}`);
      assert.deepEqual((await fork.commands()).map(({ id, status }) => [id, status]).slice(0, 1), [
        [counter.id, undefined],
      ]);
      await refused(fork.command(ended.id).result(), "NotFound");
      await output(fork, `echo ${fork.id} >/own`);
      const { stdoutText } = await fork.openedSession("kept").run('echo "$there $PWD $(cat <&7)"');
      assert.equal(stdoutText, "1 /tmp before\n");
    }
    for (const at of [0, 1, 2, 3, 4]) {
      const each = said.map((lines) => lines[at]);
      assert.equal(new Set(each).size, each.length, JSON.stringify(each));
    }
    assert.deepEqual([said[0]?.[0], said[0]?.[3]], [before[0], before[3]], "it stays who it is");
    for (const fork of forks) assert.equal(await output(fork, "cat /own"), fork.id);
    assert.equal(await output(parent, "ls /own 2>/dev/null || echo none"), "none");
    for (const one of [parent, ...forks]) {
      const command = one.command(counter.id);
      await command.signal("SIGKILL");
      const numbers = (await command.result()).stdoutText.trimEnd().split("\n");
      assert.deepEqual(numbers, [...numbers.keys()].map(String), "no line is lost, none comes twice");
    }
    await session.remove();
  });

  test("copies show what it showed; what is typed into one shows there alone", async () => {
    await using stack = new AsyncDisposableStack();
    await parent.computer.type("clear; echo shown before the fork\n");
    const before = await picture(parent);
    const forks = await forked(stack, parent.fork({ count: 2 }));
    for (const fork of forks) assert.equal(differMore(before, await picture(fork), A_LINE), false, "it shows the same");
    const pictures = [];
    for (const [at, fork] of forks.entries()) {
      await fork.computer.type(`echo ${"only in the copy ".repeat(at + 1)} $((40+${at})) | tee /root/typed\n`);
      await waitUntil("it is typed", START_MS, async () => (await fork.run("cat /root/typed")).ok);
      pictures.push(await picture(fork));
    }
    const [first, second] = pictures;
    assert.ok(first !== undefined && second !== undefined);
    assert.ok(
      differMore(first, before, A_LINE) && differMore(second, before, A_LINE) && differMore(first, second, A_LINE),
    );
    assert.equal(differMore(before, await picture(parent), A_LINE), false, "its own screen is as it was");
  });

  test("one that is paused stays so while it is forked; a copy outlives it, and is paused and forked itself", async () => {
    await using stack = new AsyncDisposableStack();
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(child !== undefined);
    await output(child, "echo 1 >/one; (sleep 1000 &) >/dev/null 2>&1");
    await child.pause();
    const [grandchild] = await forked(stack, child.fork({ count: 1 }));
    assert.ok(grandchild !== undefined);
    assert.equal((await child.info()).state, "paused");
    await child.remove();
    await grandchild.pause();
    assert.equal(await output(grandchild, "cat /one; ps | grep -c '[s]leep 1000'"), "1\n1");
  });

  test("two at once, and who switches it meanwhile: one after the other", async () => {
    await using stack = new AsyncDisposableStack();
    const both = [1, 2].map(() => parent.fork({ count: 1 }));
    const power = (async () => {
      for (let at = 0; at < 20; at++) assert.equal((await parent.computer.info()).power, "on");
    })();
    const made = [];
    for (const forks of both) made.push(...(await forked(stack, forks)));
    await power;
    for (const one of [parent, ...made]) {
      assert.equal((await one.computer.info()).power, "on");
      assert.equal(await output(one, "echo alive"), "alive");
    }
  });

  test("copies of one that is off are off, and of one whose monitor is lost have its disk", async () => {
    await using stack = new AsyncDisposableStack();
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(child !== undefined);
    await output(child, "echo kept >/root/kept");
    await child.run("poweroff").catch(() => undefined);
    await waitUntil("it is off", START_MS, async () => (await child.computer.info()).power === "off");
    const [off] = await forked(stack, child.fork({ count: 1 }));
    assert.ok(off !== undefined);
    assert.equal((await off.computer.info()).power, "off");
    await off.computer.power("on");
    await answers(off);
    assert.equal(await output(off, "cat /root/kept; cat /etc/hostname"), `kept\n${off.id}`);
    process.kill(monitorOf(node, off), "SIGKILL");
    await untilLost(off);
    const [again] = await forked(stack, off.fork({ count: 1 }));
    assert.ok(again !== undefined);
    await answers(again);
    assert.equal(await output(again, "cat /root/kept"), "kept");
  });

  test("a system without an agent: copies go on, and each hears its own keys", async () => {
    await using stack = new AsyncDisposableStack();
    const computer = stack.use(await createComputer(node));
    await memtestShows(computer);
    const forks = await forked(stack, computer.fork({ count: 2 }));
    for (const one of [computer, ...forks]) {
      assert.equal((await one.computer.info()).power, "on");
      await pictureOtherThan(one, described((await one.computer.screenshot()).png).digest);
    }
    const [first, second] = forks;
    assert.ok(first !== undefined && second !== undefined);
    await first.computer.press(["f1"]);
    await waitUntil("its menu shows", START_MS, async () => {
      const [one, other] = await Promise.all(
        [first, second].map(async ({ computer: of }) => decodePng((await of.screenshot()).png)),
      );
      return one !== undefined && other !== undefined && differMore(one, other, 0.05);
    });
  });

  test("a monitor that is killed meanwhile fails the fork by its type, and leaves nothing", async () => {
    await using stack = new AsyncDisposableStack();
    const [victim] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(victim !== undefined);
    const forking = refused(victim.fork({ count: 2, labels: { of: "victim" } }), "SandboxLost");
    await waitUntil("it is held", START_MS, () => existsSync(join(runDirOf(node, victim), "held")));
    process.kill(monitorOf(node, victim), "SIGKILL");
    await forking;
    assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list({ labels: { of: "victim" } })), []);
    await untilLost(victim);
    await nothingIsLeft(node);
  });

  test("a monitor that hangs holds up nobody else: calls end at their time and leave nothing, and it goes on when it can", async () => {
    await using stack = new AsyncDisposableStack();
    const [hung] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(hung !== undefined);
    process.kill(monitorOf(node, hung), "SIGSTOP");
    const late = { timeoutMs: 3_000 };
    await refused(hung.fork({ count: 2, labels: { of: "hung" }, ...late }), "DeadlineExceeded");
    await refused(hung.packDiff({ name: "hung", keep: ["credentials", "history"], ...late }), "DeadlineExceeded");
    assert.equal(await output(parent, "echo alive"), "alive");
    const left = () => Array.fromAsync(node.client.sandboxes.list({ labels: { of: "hung" } }));
    await waitUntil("its copies are gone", START_MS, async () => (await left()).length === 0);
    process.kill(monitorOf(node, hung), "SIGCONT");
    assert.equal(await output(hung, "echo alive"), "alive");
    assert.equal((await hung.computer.info()).power, "on");
    await nothingIsLeft(node);
  });

  test("a node that is killed meanwhile lets it go on, and comes back without half of a copy", async () => {
    const forking = parent.fork({ count: 2, labels: { of: "killed" } }).catch(() => undefined);
    await waitUntil("it is held", START_MS, () => existsSync(join(runDirOf(node, parent), "held")));
    await node.kill();
    await forking;
    await node.start();
    parent = node.client.sandboxes.use(parent.id);
    assert.equal(await output(parent, "echo alive"), "alive");
    assert.equal((await parent.computer.info()).power, "on");
    assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list({ labels: { of: "killed" } })), []);
    await nothingIsLeft(node);
  });

  test("a full volume refuses it by its type, leaves nothing, and holds up nobody", async () => {
    await using small = await startNodeWithSystem({ words: ["--vm-volume-size=256MiB"] });
    const sandbox = await createSystem(small);
    // Its own disk takes what there is: it hears of that as of a broken disk.
    await sandbox.run("dd if=/dev/urandom of=/big bs=1M count=200; sync", { timeLimitMs: START_MS });
    await refused(sandbox.fork({ count: 2 }), "StorageFull");
    assert.equal(await output(sandbox, "echo alive"), "alive");
    assert.equal((await sandbox.computer.info()).power, "on");
    assert.equal((await Array.fromAsync(small.client.sandboxes.list())).length, 1);
    await nothingIsLeft(small);
  });
});
