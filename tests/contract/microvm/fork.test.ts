import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Forks, Sandbox } from "#sdk";
import type { TestNode } from "../../support/node.ts";
import { output, refused } from "../../support/sandbox.ts";
import { MICROVM } from "./backend.ts";

/** In what it writes every number that is missing, or comes twice, shows. */
const COUNTER = "i=0; while [ $i -lt 100000 ]; do echo $i; i=$((i+1)); sleep 0.05; done";
/** All that must not be the same in two sandboxes of one instant. */
const IDENTITY =
  "cat /proc/sys/kernel/random/boot_id /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; hostname; cat /etc/hostname";

describe("forks of microVMs", { timeout: 1_200_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  async function forked(stack: AsyncDisposableStack, forks: Promise<Forks>): Promise<readonly Sandbox[]> {
    return (await forks).forks.map((made) => {
      assert.ok("sandbox" in made, "error" in made ? made.error.message : "");
      return stack.use(made.sandbox);
    });
  }

  test("processes, sessions and outputs go on in every fork from one instant, each by itself", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await MICROVM.create(node, { labels: { a: "1" } }));
    const session = stack.use(await parent.session({ name: "kept" }));
    await session.run("there=1; cd /tmp; echo before >file; exec 7<file");
    const counter = await parent.start(COUNTER);
    const ended = await parent.start("echo over");
    await ended.result();
    const forks = await forked(stack, parent.fork({ count: 3, labels: { b: "2" } }));
    const all = [parent, ...forks];
    for (const [index, fork] of forks.entries()) {
      assert.deepEqual([fork.view?.parent, fork.view?.labels], [parent.id, { a: "1", b: "2" }]);
      const listed = await fork.commands();
      assert.deepEqual(
        listed.map(({ id, status }) => [id, status]),
        [[counter.id, undefined]],
        "what ended before is the parent's alone",
      );
      await refused(fork.command(ended.id).result(), "NotFound");
      await output(fork, `echo ${index} >/own`);
      const again = fork.openedSession("kept");
      const { stdout } = await again.run('echo "$there $PWD $(cat <&7)"');
      assert.equal(text(stdout), "1 /tmp before\n");
    }
    for (const [index, fork] of forks.entries()) assert.equal(await output(fork, "cat /own"), String(index));
    assert.equal(await output(parent, "ls /own 2>/dev/null || echo none"), "none");
    for (const one of all) {
      const command = one.command(counter.id);
      await command.signal("SIGKILL");
      const { stdout } = await command.result();
      const numbers = text(stdout).trimEnd().split("\n");
      assert.deepEqual(numbers, [...numbers.keys()].map(String), "no line is lost, none comes twice");
    }
  });

  test("clones share randomness, hostname, machine-id, boot id: forks of one instant share none, and each has the time", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await MICROVM.create(node));
    const before = (await output(parent, IDENTITY)).split("\n");
    const forks = await forked(stack, parent.fork({ count: 2 }));
    const said = [
      before,
      ...(await Promise.all(forks.map(async (fork) => (await output(fork, IDENTITY)).split("\n")))),
    ];
    for (const at of [0, 1, 2, 3, 4]) {
      assert.equal(
        new Set(said.map((lines) => lines[at])).size,
        said.length,
        JSON.stringify(said.map((lines) => lines[at])),
      );
    }
    for (const fork of forks) {
      assert.equal(await output(fork, "hostname"), fork.id);
      const clock = Number(await output(fork, "date +%s"));
      assert.ok(Math.abs(clock - Date.now() / 1_000) < 60, `the clock says ${clock}`);
    }
    assert.deepEqual(
      (await output(parent, IDENTITY)).split("\n").slice(0, 2),
      before.slice(0, 2),
      "it stays who it is",
    );
  });

  test("a large output goes on in a fork, whole, and a paused sandbox is forked as it is", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await MICROVM.create(node));
    const writer = await parent.start("seq 1 50000; until [ -e /go ]; do sleep 0.05; done; seq 50001 60000");
    await output(parent, "true");
    await parent.pause();
    const [fork] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(fork !== undefined);
    assert.equal((await parent.info()).state, "paused");
    for (const one of [fork, parent]) {
      await output(one, "touch /go");
      const { stdout } = await one.command(writer.id).result();
      assert.equal(text(stdout), `${Array.from({ length: 60_000 }, (_, at) => at + 1).join("\n")}\n`);
    }
  });

  test("a fork outlives its parent, is paused, resumed and forked itself", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await MICROVM.create(node));
    await output(parent, "echo 1 >/one; (sleep 1000 &) >/dev/null 2>&1");
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(child !== undefined);
    await parent.remove();
    await child.pause();
    const [grandchild] = await forked(stack, child.fork({ count: 1 }));
    assert.ok(grandchild !== undefined);
    await child.remove();
    assert.equal(await output(grandchild, "cat /one; ps | grep -c '[s]leep 1000'"), "1\n1");
  });

  test("a sandbox whose machine is lost can be forked: its files live on", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await MICROVM.create(node));
    await output(parent, "echo precious >/file; sync");
    await MICROVM.crash(node, parent);
    while ((await parent.info()).state !== "failed");
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.equal(child === undefined ? "" : await output(child, "cat /file"), "precious");
  });

  test("one slow child fails a whole batch: a node without room for all makes those it has room for", async () => {
    await using small = await MICROVM.startNode({ words: ["--max-sandboxes=2"] });
    const parent = await MICROVM.create(small);
    const { forks } = await parent.fork({ count: 2 });
    const kinds = forks.map((made) => ("sandbox" in made ? "ready" : (made.error as { kind?: string }).kind));
    assert.deepEqual(kinds, ["ready", "NodeFull"]);
    for (const { surplus } of await small.client.nodes.resources(small.marks.edge)) assert.deepEqual(surplus, []);
  });
});

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString();
}
