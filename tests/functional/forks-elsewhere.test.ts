import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Client, DsecError, type Forks, type Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { BASE, output, refused } from "../support/sandbox.ts";

const SECRET = "a-secret-of-two-nodes-in-a-test-long-enough";

/** Two nodes of which the first places forks on the second. */
interface Pair extends AsyncDisposable {
  readonly a: TestNode;
  readonly b: TestNode;
  /** The store that both use. */
  readonly root: string;
}

interface PairOptions {
  readonly store: boolean;
  /** Of the first node. */
  readonly words?: readonly string[];
}

async function pair({ store, words = [] }: PairOptions): Promise<Pair> {
  await using opened = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "dsec-pair-"));
  opened.defer(() => rmSync(folder, { recursive: true, force: true }));
  const [root, token] = [join(folder, "store"), join(folder, "token")];
  mkdirSync(root);
  writeFileSync(token, SECRET, { mode: 0o600 });
  const both = [`--node-token=${token}`, ...(store ? [`--store=${root}`] : [])];
  const address = `127.0.0.1:${await freePort()}`;
  const b = opened.use(await startNode({ words: [...both, `--fork-listen=${address}`] }));
  const named = `--fork-nodes=${b.marks.edge}=${address}`;
  const a = opened.use(await startNode({ words: [...both, named, ...words] }));
  await a.client.artifacts.build({ name: BASE, suite: BASE });
  await seen(a, b, "ready");
  const closing = opened.move();
  const close = async () => {
    // Each has copies of the other's mounts in namespaces of its own, so nothing of one is gone before both have ended.
    assert.deepEqual([await a.stop(), await b.stop()], [0, 0]);
    await closing.disposeAsync();
  };
  return { a, b, root, [Symbol.asyncDispose]: close };
}

/** Resolves when the first takes the second for what is said, after what it has heard since then: one that was killed counts as ready for a while. */
async function seen(a: TestNode, b: TestNode, as: "ready" | "lost", sinceMs = performance.now()): Promise<void> {
  for (;;) {
    const isNew = (ageMs: number) => as === "lost" || ageMs < performance.now() - sinceMs;
    const nodes = await a.client.nodes.list();
    if (nodes.some(({ edge, state, ageMs }) => edge === b.marks.edge && state === as && isNew(ageMs))) return;
    await setTimeout(50);
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  assert.ok(typeof address === "object" && address !== null);
  return address.port;
}

const places = ({ forks }: Forks) =>
  forks.map((made) => ("sandbox" in made ? made.sandbox.view?.edge : (made.error as DsecError).kind));
const made = ({ forks }: Forks): readonly Sandbox[] =>
  forks.flatMap((each) => ("sandbox" in each ? [each.sandbox] : []));

/** Children that nodes have of a sandbox, by the id. */
async function childrenOf(node: TestNode, parent: string): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const one of node.client.sandboxes.list()) if (one.parent === parent) ids.push(one.id);
  return ids.sort();
}

describe("forks on another node", { timeout: 900_000 }, () => {
  test("begin at the instant of those that stay, are used and removed like them, and fork on", async () => {
    await using nodes = await pair({ store: true, words: ["--max-sandboxes=2"] });
    const { a, b } = nodes;
    await using parent = await a.client.sandboxes.create({ base: BASE, env: { KEPT: "yes" }, labels: { a: "1" } });
    await output(parent, "mkdir -p /root/.ssh; echo key >/root/.ssh/id_rsa; echo x >/f; chmod 4750 /f; ln /f /g");
    await output(parent, "dd if=/dev/urandom of=/big bs=1M count=3 2>/dev/null");
    await parent.start("while :; do echo x >>/grows; done");
    await output(parent, "until [ -s /grows ]; do sleep 0.01; done");
    const forks = await parent.fork({ count: 3, labels: { b: "2" } });
    assert.deepEqual(places(forks), [a.marks.edge, b.marks.edge, b.marks.edge]);
    const told = "wc -c </grows; cat /root/.ssh/id_rsa; stat -c '%a %u %h' /f; sha256sum /big; echo $KEPT";
    const said = await Promise.all(made(forks).map((fork) => output(fork, told)));
    assert.deepEqual(said, [said[0], said[0], said[0]]);
    for (const fork of made(forks)) {
      assert.deepEqual([fork.view?.parent, fork.view?.labels], [parent.id, { a: "1", b: "2" }]);
      assert.equal(await output(fork, "hostname"), fork.id);
    }
    const { stdout } = await dsec(a, ["tree"]);
    for (const { id } of made(forks)) assert.match(stdout, new RegExp(`[├└]─ ${id} `));
    const [, there] = made(forks);
    assert.ok(there !== undefined);
    await output(there, "echo more >/more");
    const further = await there.fork({ count: 2 });
    assert.deepEqual(places(further), [b.marks.edge, b.marks.edge]);
    assert.equal(await output(made(further)[0] as Sandbox, "cat /more"), "more");
    assert.deepEqual(places(await there.fork({ count: 1, nodes: "other" })), ["NodeFull"]);
    for (const fork of [...made(forks), ...made(further)]) await fork.remove();
    assert.deepEqual(await childrenOf(b, parent.id), []);
    assert.deepEqual(
      (await a.client.artifacts.list()).map(({ name }) => name),
      [BASE],
    );
  });

  test("are all that is made when asked for, by words too; who asks for none gets none", async () => {
    await using nodes = await pair({ store: true, words: ["--max-sandboxes=1"] });
    const { a, b } = nodes;
    await using parent = await a.client.sandboxes.create({ base: BASE });
    await output(parent, "echo there >/file");
    const told = await dsec(a, ["fork", parent.id, "--count=2", "--nodes=other"]);
    const ids = told.stdout.trim().split("\n");
    assert.deepEqual([told.status, ids.length, [...ids].sort()], [0, 2, await childrenOf(b, parent.id)]);
    assert.equal(await output(a.client.sandboxes.use(ids[0] ?? ""), "cat /file"), "there");
    assert.deepEqual(places(await parent.fork({ count: 1, nodes: "same" })), ["NodeFull"]);
    await refused(parent.fork({ count: 1, nodes: "none" as "any" }), "InvalidArgument", /nodes/);
    await b.stop({ keep: true });
    await refused(a.client.sandboxes.use(ids[0] ?? "").remove(), "Unavailable");
    await seen(a, b, "lost");
    assert.deepEqual(places(await parent.fork({ count: 1 })), ["NodeFull"]);
    await b.start();
    await seen(a, b, "ready");
    for (const id of ids) await a.client.sandboxes.use(id).remove();
    assert.deepEqual(await childrenOf(b, parent.id), []);
  });

  test("without a store fail by themselves, and so they do when it cannot be written", async () => {
    await using alone = await pair({ store: false, words: ["--max-sandboxes=2"] });
    await using parent = await alone.a.client.sandboxes.create({ base: BASE });
    const forks = await parent.fork({ count: 2 });
    assert.deepEqual(places(forks), [alone.a.marks.edge, "FailedPrecondition"]);
    for (const fork of made(forks)) await fork.remove();
    await using nodes = await pair({ store: true, words: ["--max-sandboxes=2"] });
    await using other = await nodes.a.client.sandboxes.create({ base: BASE });
    // Nodes may be writing to it.
    rmSync(nodes.root, { recursive: true, maxRetries: 10 });
    writeFileSync(nodes.root, "no directory");
    const [here, there] = places(await other.fork({ count: 2 }));
    assert.deepEqual([here, there === nodes.b.marks.edge], [nodes.a.marks.edge, false]);
    assert.match(String(there), /^(Unavailable|FailedPrecondition|Internal)$/);
  });

  for (const which of ["a", "b"] as const) {
    test(`are whole or gone when node ${which} is killed in the middle, and a repeat makes no others`, async () => {
      await using nodes = await pair({ store: true });
      const { a, b } = nodes;
      const { id } = await a.client.sandboxes.create({ base: BASE });
      await output(a.client.sandboxes.use(id), "dd if=/dev/urandom of=/big bs=1M count=16 2>/dev/null");
      for (const [round, reached] of POINTS.entries()) {
        const options = { count: 3, nodes: "other", idempotencyKey: `key-${round}` } as const;
        await interrupted(nodes, id, options, nodes[which], reached);
        await nodes[which].start();
        await seen(a, b, "ready");
        const sandbox = a.client.sandboxes.use(id);
        const forks = await repeated(sandbox, options);
        assert.deepEqual(places(forks), [b.marks.edge, b.marks.edge, b.marks.edge]);
        const ids = made(forks).map((fork) => fork.id);
        assert.deepEqual(await childrenOf(b, id), [...ids].sort());
        assert.deepEqual(
          made(await sandbox.fork(options)).map((fork) => fork.id),
          ids,
        );
        const sum = await output(sandbox, "sha256sum /big");
        for (const fork of made(forks)) {
          assert.equal(await output(fork, "sha256sum /big"), sum);
          await fork.remove();
        }
        for (const node of [a, b]) {
          for (const { surplus } of await node.client.nodes.resources(node.marks.edge)) assert.deepEqual(surplus, []);
          assert.deepEqual(readdirSync(join(node.runDir, "volume/.copies")), []);
        }
      }
    });
  }
});

/** What the making of forks elsewhere goes by, as the folders of the nodes show it. */
const POINTS: readonly ((nodes: Pair) => Promise<boolean> | boolean)[] = [
  ({ a }) => readdirSync(join(a.runDir, "volume/.copies")).length > 0,
  ({ a }) => readdirSync(join(a.dataDir, "images/layers")).length > 1,
  ({ root }) => names(join(root, "layers")).length > 1,
  ({ b }) => names(join(b.dataDir, "images/layers")).length > 1,
];

function names(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Asks until no node is away: one that comes back is not reached at once. */
async function repeated(sandbox: Sandbox, options: Parameters<Sandbox["fork"]>[0]) {
  for (;;) {
    const forks = await sandbox.fork(options).catch((error: unknown) => {
      if (!(error instanceof DsecError && error.kind === "Unavailable")) throw error;
    });
    if (forks !== undefined && !places(forks).includes("Unavailable")) return forks;
    await setTimeout(50);
  }
}

/** Asks for forks, and kills a node at the point, or when the call is over before that was seen. */
async function interrupted(
  nodes: Pair,
  id: string,
  options: Parameters<Sandbox["fork"]>[0],
  victim: TestNode,
  reached: (typeof POINTS)[number],
): Promise<void> {
  using client = new Client({ url: nodes.a.url, token: nodes.a.token, retries: 0 });
  let over = false;
  const asking = client.sandboxes
    .use(id)
    .fork(options)
    .catch((error: unknown) => assert.ok(error instanceof DsecError, `an untyped error: ${error}`))
    .finally(() => {
      over = true;
    });
  while (!over && !(await reached(nodes))) await setTimeout(1);
  await victim.kill();
  await asking;
}
