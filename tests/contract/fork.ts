import assert from "node:assert/strict";
import { readdirSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Forks, Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

const MIB = 1024 * 1024;

/** A sandbox becomes many at one instant. */
export function forkContract(backend: ContractBackend): void {
  describe(`forking a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());
    const given = { node: () => node, backend };

    independence(given);
    sharing(given);
    faults(given);
    trees(given);
    refusals(given);
  });
}

interface Given {
  readonly backend: ContractBackend;
  node(): TestNode;
}

/** All of them, ready; they are removed at the end of the scope. */
async function forked(stack: AsyncDisposableStack, forks: Promise<Forks>): Promise<readonly Sandbox[]> {
  return (await forks).forks.map((made) => {
    assert.ok("sandbox" in made, "error" in made ? made.error.message : "");
    return stack.use(made.sandbox);
  });
}

function independence(given: Given): void {
  test("forks begin with the files of one instant, without processes, and go their own ways", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(
      await given.backend.create(given.node(), { labels: { a: "1", b: "1" }, env: { KEPT: "yes" } }),
    );
    await output(parent, "echo then >/file; mkdir /d; ln /file /d/again; chown 12:34 /d");
    await parent.start("while :; do echo x >>/grows; done");
    await output(parent, "until [ -s /grows ]; do sleep 0.01; done");
    const forks = await forked(stack, parent.fork({ count: 4, labels: { b: "2" } }));
    assert.equal(new Set(forks.map(({ id }) => id)).size, 4);
    const lengths = await Promise.all(forks.map((fork) => output(fork, "wc -c </grows; wc -c </grows")));
    const [length = ""] = lengths;
    for (const each of lengths) assert.equal(each, length, "something writes in a fork, or they are of two instants");
    assert.equal(new Set(length.split("\n")).size, 1);
    for (const [index, fork] of forks.entries()) {
      assert.equal(
        await output(fork, "cat /file; stat -c %u:%g /d; stat -c %h /file; echo $KEPT; hostname"),
        `then\n12:34\n2\nyes\n${fork.id}`,
      );
      await output(fork, `echo ${index} >/file; touch /own-${index}; rm -r /d`);
      assert.deepEqual([fork.view?.parent, fork.view?.labels], [parent.id, { a: "1", b: "2" }]);
    }
    for (const [index, fork] of forks.entries()) {
      assert.equal(await output(fork, "cat /file; ls -d /own-* /d 2>/dev/null || true"), `${index}\n/own-${index}`);
    }
    assert.equal(await output(parent, "cat /file; ls -d /own-* /d 2>/dev/null || true"), "then\n/d");
  });

  test("a fork outlives its parent, is forked and packed itself, and has its own lifetime", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node(), { maxLifetimeMs: 3_600_000 }));
    await output(parent, "echo 1 >/one");
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(child !== undefined);
    await output(child, "echo 2 >/two");
    await parent.remove();
    const [grandchild] = await forked(stack, child.fork({ count: 1 }));
    assert.ok(grandchild !== undefined);
    await child.remove();
    assert.equal(await output(grandchild, "cat /one /two"), "1\n2");
    const { createdAtMs, maxLifetimeMs } = await grandchild.info();
    assert.equal(maxLifetimeMs, 3_600_000);
    assert.ok(createdAtMs > (parent.view?.createdAtMs ?? 0));
    const packed = await grandchild.packDiff({ name: "grandchild" });
    assert.equal(packed.entries, 2);
  });

  test("a sandbox whose agent is lost can be forked: its files live on", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node()));
    await output(parent, "echo precious >/file");
    await given.backend.crash(given.node(), parent);
    while ((await parent.info()).state !== "failed");
    const [child] = await forked(stack, parent.fork({ count: 1 }));
    assert.equal(child === undefined ? "" : await output(child, "cat /file"), "precious");
  });
}

function sharing(given: Given): void {
  test("branches share all earlier data and record only what they change themselves", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node(), { resources: { diskMiB: 256 } }));
    await output(parent, "dd if=/dev/urandom of=/big bs=1M count=128 2>/dev/null; sync");
    const held = async (one: Sandbox) => (await one.usage()).diskBytes ?? 0;
    assert.ok((await held(parent)) >= 128 * MIB);
    const forks = await forked(stack, parent.fork({ count: 8 }));
    for (const fork of forks) assert.ok((await held(fork)) < 2 * MIB, "a fork was charged for what it shares");
    const [first] = forks;
    assert.ok(first !== undefined);
    await output(first, "dd if=/dev/urandom of=/big bs=1M count=4 seek=60 conv=notrunc 2>/dev/null; sync");
    const own = await held(first);
    assert.ok(own >= 4 * MIB && own < 8 * MIB, `${own} bytes for 4 MiB of changes`);
  });

  test("forking a gigabyte writes none of it: the volume holds no more than before", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node()));
    await output(parent, "dd if=/dev/zero of=/big bs=1M count=1024 2>/dev/null; echo end >>/big; sync");
    const volume = join(given.node().runDir, "volume");
    const heldBytes = () => {
      const { blocks, bfree, bsize } = statfsSync(volume);
      return (blocks - bfree) * bsize;
    };
    const before = heldBytes();
    assert.ok(before > 1024 * MIB, `${before} bytes before`);
    const forks = await forked(stack, parent.fork({ count: 4 }));
    for (const fork of forks)
      assert.equal(await output(fork, "stat -c %s /big; tail -c 4 /big"), `${1024 * MIB + 4}\nend`);
    await Promise.all(forks.map((fork) => output(fork, "sync")));
    const added = heldBytes() - before;
    assert.ok(added < 32 * MIB, `${added} bytes for four forks of ${before}`);
  });

  test("a branch that is packed adds to the store what it changed itself, and no data that its tree has there", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node()));
    await output(parent, "dd if=/dev/urandom of=/big bs=1M count=32 2>/dev/null");
    const storedBytes = () => {
      const folder = join(given.node().dataDir, "images");
      const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
      const stored = names.filter((name) => /^(blobs|layers)\//.test(name));
      const files = stored.map((name) => statSync(join(folder, name), { throwIfNoEntry: false }));
      return files.reduce((sum, stats) => sum + (stats?.isFile() === true ? stats.size : 0), 0);
    };
    const [empty] = [storedBytes(), await parent.packDiff({ name: "tree-top" })];
    const whole = storedBytes();
    assert.ok(whole - empty > 32 * MIB, `${whole - empty} bytes for 32 MiB`);
    for (const [index, branch] of (await forked(stack, parent.fork({ count: 2 }))).entries()) {
      const before = storedBytes();
      await output(branch, "dd if=/dev/urandom of=/own bs=1M count=2 2>/dev/null");
      const { bytes } = await branch.packDiff({ name: `branch-${index}` });
      assert.ok(bytes >= 34 * MIB, "a branch has all that its tree wrote");
      const added = storedBytes() - before;
      assert.ok(added >= 2 * MIB && added < 4 * MIB, `${added} bytes for 2 MiB of changes`);
    }
  });

  test("each has its parent's limit for what it writes itself", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node(), { resources: { diskMiB: 32 } }));
    await output(parent, "dd if=/dev/urandom of=/half bs=1M count=16 2>/dev/null; sync");
    const [fork] = await forked(stack, parent.fork({ count: 1 }));
    assert.ok(fork !== undefined);
    const { stdoutText } = await fork.run(
      "dd if=/dev/urandom of=/more bs=64k count=1024 2>/dev/null; stat -c %s /more",
    );
    const written = Number(stdoutText);
    assert.ok(written > 20 * MIB && written <= 32 * MIB, `${written}`);
    assert.equal(await output(parent, "echo alive >/still; cat /still"), "alive");
  });
}

function faults(given: Given): void {
  test("one slow child fails a whole batch: a node without room for all makes those it has room for, and says so of each other", async () => {
    await using node = await given.backend.startNode({ words: ["--max-sandboxes=3"] });
    const parent = await given.backend.create(node);
    const { forks } = await parent.fork({ count: 4 });
    const kinds = forks.map((made) => ("sandbox" in made ? "ready" : (made.error as { kind?: string }).kind));
    assert.deepEqual(kinds, ["ready", "ready", "NodeFull", "NodeFull"]);
  });

  test("client retry starts the job twice: the same key gives the same forks, and other labels under it are refused", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node()));
    const idempotencyKey = `fork ${parent.id}`;
    const both = await Promise.all([1, 2].map(() => parent.fork({ count: 2, idempotencyKey })));
    await output(parent, "touch /later");
    const third = await forked(stack, parent.fork({ count: 3, idempotencyKey }));
    const ids = third.map(({ id }) => id);
    for (const { forks } of both) {
      assert.deepEqual(
        forks.map((made) => ("sandbox" in made ? made.sandbox.id : made.error.message)),
        ids.slice(0, 2),
      );
    }
    const { forks } = await parent.fork({ count: 1, labels: { other: "x" }, idempotencyKey });
    assert.match(forks.map((made) => ("error" in made ? made.error.message : "")).join(), /is another one/);
  });

  test("a fork that is given up leaves nothing", async () => {
    await using parent = await given.backend.create(given.node());
    await output(parent, "dd if=/dev/urandom of=/data bs=1M count=32 2>/dev/null");
    for (const afterMs of [0, 3, 10, 30]) {
      await parent
        .fork({ count: 8, labels: { given: "up" }, signal: AbortSignal.timeout(afterMs) })
        .catch(() => undefined);
    }
    const left = async () => Array.fromAsync(given.node().client.sandboxes.list({ labels: { given: "up" } }));
    // Those that were ready before their caller left were taken back by it, or were told to it.
    for (const { id } of await left()) await given.node().client.sandboxes.remove(id);
    assert.equal(await output(parent, "echo alive"), "alive");
    for (const { surplus } of await given.node().client.nodes.resources(parent.view?.edge ?? "")) {
      assert.deepEqual(surplus, []);
    }
  });

  test("a node that is killed in the middle comes back with whole forks or none, and lets the parent go on", async () => {
    await using node = await given.backend.startNode();
    const parent = await given.backend.create(node);
    await output(parent, "dd if=/dev/urandom of=/data bs=1M count=64 2>/dev/null");
    const leaving = new AbortController();
    const forking = parent.fork({ count: 16, signal: leaving.signal }).catch(() => undefined);
    const uppers = join(node.runDir, "volume");
    while (readdirSync(uppers).filter((name) => name.startsWith("s")).length < 5) await new Promise(setImmediate);
    await node.kill();
    leaving.abort();
    await forking;
    await node.start();
    const { client } = node;
    assert.equal(await output(client.sandboxes.use(parent.id), "echo alive"), "alive");
    for await (const view of client.sandboxes.list()) assert.equal(view.state, "ready", view.id);
    for (const { surplus } of await client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
    assert.deepEqual(readdirSync(join(uppers, ".copies")), []);
  });
}

function trees(given: Given): void {
  test("dsec fork prints ids, and dsec tree shows who came from whom", async () => {
    await using stack = new AsyncDisposableStack();
    const parent = stack.use(await given.backend.create(given.node()));
    const printed = await dsec(given.node(), ["fork", parent.id, "--count", "2", "--label", "of=tree"]);
    assert.equal(printed.status, 0, printed.stderr);
    const [first = "", second = ""] = printed.stdout.trim().split("\n");
    for (const id of [first, second]) stack.use(given.node().client.sandboxes.use(id));
    const [grandchild] = await forked(stack, given.node().client.sandboxes.use(first).fork({ count: 1 }));
    const shown = await dsec(given.node(), ["tree", second]);
    const lines = shown.stdout.split("\n").map((line) => line.replace(/ +ready .*$/, ""));
    const below = [first, second].sort();
    const expected = below.flatMap((id, index) => {
      const [mark, rest] = index === 0 ? ["├─ ", "│  "] : ["└─ ", "   "];
      return id === first ? [mark + id, `${rest}└─ ${grandchild?.id}`] : [mark + id];
    });
    assert.deepEqual(lines.slice(1, -1), [parent.id, ...expected]);
  });
}

function refusals(given: Given): void {
  test("bad counts, labels and sandboxes are refused by field", async () => {
    await using sandbox = await given.backend.create(given.node());
    for (const count of [0, -1, 1.5, 257]) await refused(sandbox.fork({ count }), "InvalidArgument", /count/);
    await refused(sandbox.fork({ count: 1, labels: { "": "x" } }), "InvalidArgument", /labels/);
    await sandbox.remove();
    await refused(sandbox.fork({ count: 1 }), "NotFound");
  });
}
