import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { PackView, Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { installProgram, output, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

/** Changes of every kind to a base, made by the sandbox's own tools. */
const CHANGES = `
mkdir -p /made/sub /made/empty && cd /made
printf data >file; chown 12:34 file; chmod 4751 file; touch -d @1234567890 file
ln file sub/again; ln -s no/where dangling; mkfifo -m 640 pipe
printf x >"$(printf 'odd\\377\\n')"
name=$(printf 'n%.0s' $(seq 255)); printf y >"$name"
dd if=/dev/zero of=holes bs=1 count=1 seek=50000000 2>/dev/null; printf middle | dd of=holes bs=1 seek=20000000 conv=notrunc 2>/dev/null
chmod 1777 empty; touch -d @987654321 empty sub
printf changed >>/etc/passwd
`;
/** One line an entry: all that a snapshot keeps. */
const TOLD = "find . ! -name . -exec stat -c '%n %F %a %u %g %Y %N' {} + | sort; stat -c %s file holes sub/again";
const PROGRAM = join(import.meta.dirname, "testdata/packed.c");

/** A live sandbox becomes an artifact in a moment, and others begin with it. */
export function packContract(backend: ContractBackend): void {
  describe(`packing a ${backend.name}`, { timeout: 2_700_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode();
    });
    after(() => node[Symbol.asyncDispose]());
    const given = { node: () => node, backend };

    changes(given);
    omissions(given);
    instants(given);
    hostile(given);
    refusals(given);
  });
}

interface Given {
  readonly backend: ContractBackend;
  node(): TestNode;
}

const newName = () => `packed-${randomBytes(4).toString("hex")}`;

async function restored({ backend, node }: Given, packed: PackView): Promise<Sandbox> {
  return await backend.create(node(), { base: `${packed.artifact.name}:${packed.artifact.tag}` });
}

function changes(given: Given): void {
  test("who begins with a snapshot finds all that was changed: modes, owners, times, links, holes and odd names", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, CHANGES);
    const packed = await sandbox.packDiff({ name: newName() });
    assert.equal(packed.artifact.kind, "snapshot");
    assert.equal(packed.artifact.layers.at(-1), packed.layer);
    await using copy = await restored(given, packed);
    const [before, after] = await Promise.all(
      [sandbox, copy].map((one) => output(one, `cd /made && ${TOLD}; tail -c 7 /etc/passwd; cmp file sub/again`)),
    );
    assert.equal(after, before);
    assert.equal(await output(copy, "dd if=/made/holes bs=1 skip=20000000 count=6 2>/dev/null"), "middle");
    assert.equal(await output(copy, "stat -c %i /made/file /made/sub/again | uniq | wc -l"), "1");
  });

  test("what was deleted stays deleted, and what took its place hides what was there", async () => {
    await using first = await given.backend.create(given.node());
    await output(first, "mkdir -p /a/b /c && touch /a/b/old /a/kept /c/gone /gone && printf old >/turned");
    const below = await first.packDiff({ name: newName() });
    await using second = await restored(given, below);
    await output(
      second,
      "rm /gone /c/gone && rm -r /a/b && mkdir /a/b && touch /a/b/new && rm /turned && mkdir /turned",
    );
    const packed = await second.packDiff({ name: newName() });
    assert.deepEqual(packed.artifact.layers.slice(0, -1), below.artifact.layers);
    await using third = await restored(given, packed);
    assert.equal(
      await output(third, "cd / && ls -d gone c/gone a/* a/b/* c turned/ 2>/dev/null | sort"),
      "a/b\na/b/new\na/kept\nc\nturned/",
    );
  });

  test("only the changes are in it: a sandbox that nobody touched makes a layer of nothing, one file makes one", async () => {
    await using sandbox = await given.backend.create(given.node());
    const { entries, bytes } = await sandbox.packDiff({ name: newName() });
    assert.deepEqual([entries, bytes], [0, 0]);
    await output(sandbox, "printf 12345 >/one");
    const packed = await sandbox.packDiff({ name: newName() });
    assert.deepEqual([packed.entries, packed.bytes], [1, 5]);
  });

  test("file capabilities work in who begins with it, as they did", async () => {
    await using sandbox = await given.backend.create(given.node());
    await installProgram(sandbox, PROGRAM, "/packed");
    await output(sandbox, "cp /packed /able && /packed capability /able");
    const asUser = (one: Sandbox) => one.run(["/able"], { user: "1000" }).then((result) => result.stdoutText.trim());
    assert.equal(await asUser(sandbox), "0000000000000400");
    const packed = await sandbox.packDiff({ name: newName() });
    await using copy = await restored(given, packed);
    assert.equal(await asUser(copy), "0000000000000400");
  });

  test("files written after the first resume do not vanish at the second: a chain of forty snapshots keeps every link and every deletion", async () => {
    let base: PackView | undefined;
    for (let link = 0; link < 40; link += 1) {
      await using sandbox = base === undefined ? await given.backend.create(given.node()) : await restored(given, base);
      await output(sandbox, `echo ${link} >>/chain; touch /link-${link} /last-${link}; rm -f /last-${link - 1}`);
      base = await sandbox.packDiff({ name: newName() });
      assert.ok(base.artifact.layers.length <= 33, `${base.artifact.layers.length} layers: nothing was merged`);
    }
    assert.ok(base !== undefined);
    await using last = await restored(given, base);
    assert.equal(await output(last, "wc -l </chain; ls -d /link-* | wc -l; ls -d /last-*"), "40\n40\n/last-39");
  });

  test("a snapshot has the labels that it was given, by which it is found; dsec does the same", async () => {
    await using sandbox = await given.backend.create(given.node(), { labels: { of: "the sandbox" } });
    const [first, second] = [newName(), newName()];
    const { artifact } = await sandbox.packDiff({ name: first, labels: { run: first, step: "1" } });
    assert.deepEqual(artifact.labels, { run: first, step: "1" });
    const packed = await dsec(given.node(), ["pack", sandbox.id, second, "--label", `run=${first}`]);
    assert.equal(packed.status, 0, packed.stderr);
    const found = await given.node().client.artifacts.list({ labels: { run: first } });
    assert.deepEqual(found.map(({ name }) => name).sort(), [first, second].sort());
    const listed = await dsec(given.node(), ["image", "ls", "--label", `run=${first}`, "--label", "step=1"]);
    assert.match(listed.stdout, new RegExp(first));
    assert.doesNotMatch(listed.stdout, new RegExp(second));
    const shown = await dsec(given.node(), ["image", "info", second]);
    assert.deepEqual(JSON.parse(shown.stdout).labels, { run: first });
  });

  test("environment, user and working directory of the sandbox's parts come along, its own do not", async () => {
    await using sandbox = await given.backend.create(given.node(), { env: { SECRET: "s3cret" } });
    const packed = await sandbox.packDiff({ name: newName() });
    await using copy = await restored(given, packed);
    assert.equal(await output(copy, "echo [$SECRET]"), "[]");
  });
}

function omissions(given: Given): void {
  const SECRETS = `
h=/home/ann; mkdir -p /root/.ssh $h/.aws /srv/.docker && cd /root
for f in .netrc .git-credentials .ssh/id_ed25519 $h/.aws/credentials /srv/.docker/config.json .bash_history .python_history; do echo s >$f; done
echo p >.ssh/id_ed25519.pub; echo h >.ssh/known_hosts; echo o >.bashrc
`;
  const LEFT = "cd / && find root home srv -type f 2>/dev/null | sort | tr '\\n' ' '";

  test("credentials and histories stay behind unless they are kept by name", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, SECRETS);
    const packed = await sandbox.packDiff({ name: newName() });
    assert.equal(packed.skipped.scrubbed, 7);
    await using copy = await restored(given, packed);
    assert.equal(await output(copy, LEFT), "root/.bashrc root/.ssh/id_ed25519.pub root/.ssh/known_hosts");
    const all = await sandbox.packDiff({ name: newName(), keep: ["history", "credentials"] });
    assert.equal(all.skipped.scrubbed, 0);
    await using whole = await restored(given, all);
    assert.equal((await output(whole, LEFT)).split(" ").length, 10);
  });

  test("what a pattern matches is left out with all below it, deletions too", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(
      sandbox,
      "mkdir -p /p/node_modules/x /p/src /tmp/t; touch /p/node_modules/x/y /p/src/a.o /p/src/a.c /tmp/t/u",
    );
    await output(sandbox, "rm /bin/vi");
    const packed = await sandbox.packDiff({ name: newName(), exclude: ["node_modules", "*.o", "/tmp/**", "bin/vi"] });
    assert.equal(packed.skipped.excluded, 4);
    await using copy = await restored(given, packed);
    assert.equal(await output(copy, "cd / && find p tmp | sort | tr '\\n' ' '"), "p p/src p/src/a.c tmp");
    assert.match(await output(copy, "ls -d /bin/vi"), /vi/);
  });
}

function instants(given: Given): void {
  test("all processes stand still for the moment and go on after it: two files that grow in turn are of one length", async () => {
    await using sandbox = await given.backend.create(given.node());
    // Two processes that take turns through pipes: at every instant the files differ by one line at most.
    await sandbox.start(
      "mkfifo /ab /ba; (exec 3<>/ba; while read x <&3; do echo x >>/one; echo >/ab; done) & (exec 4<>/ab; while read x <&4; do echo x >>/two; echo >/ba; done) & echo >/ba; wait",
    );
    await output(sandbox, "until [ -s /two ]; do sleep 0.01; done");
    const packed = await sandbox.packDiff({ name: newName() });
    assert.ok(packed.frozenMs > 0);
    const [, count = "0"] = (await output(sandbox, "wc -l </two; cat /one >/dev/null; wc -l </two")).split("\n");
    await output(sandbox, `until [ $(wc -l </two) -gt ${count} ]; do sleep 0.01; done`);
    await using copy = await restored(given, packed);
    const [one = 0, two = 0] = (await output(copy, "wc -l </one; wc -l </two")).split("\n").map(Number);
    assert.ok(one - two === 0 || one - two === 1, `${one} and ${two}`);
  });

  test("what is written through mappings, which no time tells of, is of one instant as well", async () => {
    await using sandbox = await given.backend.create(given.node());
    await installProgram(sandbox, PROGRAM, "/packed");
    await sandbox.start("mkdir /mapped; exec /packed mapped /mapped");
    await output(sandbox, "until [ -e /mapped/counted ]; do sleep 0.01; done");
    for (let round = 0; round < 3; round += 1) {
      await using copy = await restored(given, await sandbox.packDiff({ name: newName() }));
      const words = await output(
        copy,
        "cd /mapped && for f in ??; do od -An -v -tu8 -w4096 $f; done | while read n _; do echo $n; done",
      );
      const numbers = words.split("\n").map(Number);
      assert.equal(numbers.length, 100);
      const [first = 0, last = 0] = [numbers[0], numbers.at(-1)];
      assert.ok(first >= 100_000 && first - last <= 1, `${first} to ${last}`);
      assert.deepEqual(
        numbers,
        numbers.toSorted((a, b) => b - a),
      );
    }
  });

  test("a sandbox whose agent is lost keeps its files: they can be packed", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, `echo precious >/file; ${given.backend.settle ?? ":"}`);
    await given.backend.crash(given.node(), sandbox);
    while ((await sandbox.info()).state !== "failed");
    await using copy = await restored(given, await sandbox.packDiff({ name: newName() }));
    assert.equal(await output(copy, "cat /file"), "precious");
  });

  test("a pack that is given up leaves the sandbox running, and nothing on the node", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, "dd if=/dev/urandom of=/big bs=1M count=64 2>/dev/null");
    const name = newName();
    for (const afterMs of [0, 1, 5, 20]) {
      const left = AbortSignal.timeout(afterMs);
      await assert.rejects(sandbox.packDiff({ name, exclude: [`never-${afterMs}`], signal: left }));
    }
    await refused(given.node().client.artifacts.info(name), "NotFound");
    assert.equal(await output(sandbox, "echo alive"), "alive");
    for (const { surplus } of await given.node().client.nodes.resources(sandbox.view?.edge ?? "")) {
      assert.deepEqual(surplus, []);
    }
  });

  test("two packs of one sandbox at once, and one that is removed meanwhile, disturb nobody", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, "echo 1 >/one");
    const packs = await Promise.all([1, 2, 3].map(() => sandbox.packDiff({ name: newName() })));
    assert.equal(new Set(packs.map(({ layer }) => layer)).size, 1);
    const packing = sandbox.packDiff({ name: newName() });
    const [outcome] = await Promise.allSettled([packing, sandbox.remove()]);
    if (outcome.status === "fulfilled") assert.equal(outcome.value.entries, 1);
  });

  test("the same key makes one snapshot", async () => {
    await using sandbox = await given.backend.create(given.node());
    const options = { name: newName(), idempotencyKey: `key ${newName()}` };
    const [first, second] = await Promise.all([sandbox.packDiff(options), sandbox.packDiff(options)]);
    await output(sandbox, "touch /later");
    assert.deepEqual([first, await sandbox.packDiff(options)], [second, first]);
    await refused(sandbox.packDiff({ ...options, name: newName() }), "InvalidArgument", /another request/);
  });
}

function hostile(given: Given): void {
  test("whatever a sandbox leaves: directories deeper than any path, sockets, a file of 20 GB without data, locked-up files", async () => {
    await using sandbox = await given.backend.create(given.node());
    await installProgram(sandbox, PROGRAM, "/packed");
    await output(
      sandbox,
      "mkdir /h && /packed deep /h && /packed socket /h && mkfifo /h/pipe && ln -s /etc/shadow /h/out",
    );
    await output(
      sandbox,
      "dd if=/dev/zero of=/h/sparse bs=1 count=0 seek=20G 2>/dev/null; touch /h/locked; chmod 0 /h/locked",
    );
    const packed = await sandbox.packDiff({ name: newName() });
    assert.equal(packed.skipped.special, 1);
    assert.ok(packed.artifact.sizeBytes < 100 * 1024 * 1024);
    await using copy = await restored(given, packed);
    assert.equal(
      await output(copy, "/packed dive /h; cd /h; stat -c '%F %s %a' sparse locked pipe; readlink out"),
      "far down\nregular file 21474836480 644\nregular empty file 0 0\nfifo 0 644\n/etc/shadow".replace(
        " 0 0\n",
        " 0 0\n",
      ),
    );
  });

  test("files that a sandbox locks as far as it can: immutable it cannot make them, and other flags keep no pack", async () => {
    await using sandbox = await given.backend.create(given.node());
    await installProgram(sandbox, PROGRAM, "/packed");
    await output(sandbox, "mkdir -p /h/d && echo kept >/h/d/file");
    assert.equal(await output(sandbox, "/packed flags /h/d"), "immutable: refused\nappend-only: refused");
    await using copy = await restored(given, await sandbox.packDiff({ name: newName() }));
    assert.equal(
      await output(copy, "cat /h/d/file; echo more >>/h/d/file; rm -r /h && ls -d /h || echo gone"),
      "kept\ngone",
    );
  });

  test("100,000 small files, while the node goes on answering", async () => {
    await using sandbox = await given.backend.create(given.node());
    await installProgram(sandbox, PROGRAM, "/packed");
    await output(sandbox, "mkdir /m && /packed many /m");
    let answers = 0;
    const packing = sandbox.packDiff({ name: newName() }).finally(() => (answers = -answers));
    while (answers >= 0 && answers < 10) {
      assert.equal(await output(sandbox, "echo alive"), "alive");
      answers += 1;
    }
    const packed = await packing;
    assert.equal(packed.entries, 100_102);
    assert.equal(Math.abs(answers), 10, "the node answered nobody while it packed");
    await using copy = await restored(given, packed);
    assert.equal(await output(copy, "ls /m | wc -l; cat /m/99/99999"), "100\n99/99999");
  });
}

function refusals(given: Given): void {
  test("bad names, patterns, rules and sandboxes are refused by field", async () => {
    await using sandbox = await given.backend.create(given.node());
    await refused(sandbox.packDiff({ name: "Not A Name" }), "InvalidArgument", /name/);
    for (const exclude of ["..", "a/../b", "/", "nul\0"]) {
      await refused(sandbox.packDiff({ name: newName(), exclude: [exclude] }), "InvalidArgument", /pattern/);
    }
    const many = Array.from({ length: 257 }, () => "x");
    await refused(sandbox.packDiff({ name: newName(), exclude: many }), "InvalidArgument");
    await sandbox.remove();
    await refused(sandbox.packDiff({ name: newName() }), "NotFound");
  });

  test("a pattern made to take for ever takes a moment", async () => {
    await using sandbox = await given.backend.create(given.node());
    await output(sandbox, `touch /${"a".repeat(250)}`);
    const exclude = Array.from({ length: 80 }, () => `${"*a".repeat(100)}b`);
    assert.equal((await sandbox.packDiff({ name: newName(), exclude })).entries, 1);
  });
}
