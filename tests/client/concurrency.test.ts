import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, type Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BASE, create, startNodeWithBase } from "../support/sandbox.ts";

describe("the SDK used from many places at once", { timeout: 120_000 }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
  });
  after(() => node[Symbol.asyncDispose]());

  const numbers = (count: number) => Array.from({ length: count }, (_, at) => at);

  test("gives each command its own output", async () => {
    const results = await Promise.all(numbers(100).map((at) => sandbox.run(`echo ${at}; echo e${at} >&2; exit ${at}`)));
    for (const [at, { status, stdoutText, stderrText }] of results.entries()) {
      assert.deepEqual([status.code, stdoutText, stderrText], [at, `${at}\n`, `e${at}\n`]);
    }
  });

  test("gives each file its own content, the last write of one file whole", async () => {
    const content = (at: number) => `${at}`.repeat(50_000);
    await Promise.all(numbers(40).map((at) => sandbox.files.write(`/tmp/${at}`, content(at))));
    const read = await Promise.all(numbers(40).map((at) => sandbox.files.readText(`/tmp/${at}`)));
    assert.deepEqual(read, numbers(40).map(content));
    await Promise.all(numbers(40).map((at) => sandbox.files.write("/tmp/one", content(at))));
    assert.ok(
      numbers(40)
        .map(content)
        .includes(await sandbox.files.readText("/tmp/one")),
    );
  });

  test("feeds one command's input in the order of the writes", async () => {
    const command = await sandbox.start(["cat"], { stdin: "pipe" });
    await Promise.all(numbers(50).map((at) => command.write(`${at}\n`)));
    await command.closeStdin();
    assert.equal(
      (await command.result()).stdoutText,
      numbers(50)
        .map((at) => `${at}\n`)
        .join(""),
    );
  });

  test("lets many readers follow one output", async () => {
    const command = await sandbox.start("for i in 1 2 3; do head -c 1000000 /dev/zero; sleep 0.1; done");
    const sizes = numbers(8).map(async () => {
      let size = 0;
      for await (const bytes of command.stdout()) size += bytes.byteLength;
      return size;
    });
    assert.deepEqual(new Set(await Promise.all(sizes)), new Set([3_000_000]));
  });

  test("says of ended output what is kept, whenever it is asked", async () => {
    for (const size of [10, 100_000, 3_000_000]) {
      const command = await sandbox.start(["head", "-c", String(size), "/dev/zero"]);
      await command.wait();
      for await (const _ of command.stdout());
      for (const view of [await command.info(), (await sandbox.commands()).find(({ id }) => id === command.id)]) {
        assert.deepEqual(view?.stdout, { seen: size, kept: size, truncated: false, ended: true });
      }
    }
  });

  test("breaks off nothing but the call that was given up", async () => {
    const abort = new AbortController();
    const given = sandbox.run("sleep 30", { signal: abort.signal });
    const kept = sandbox.run("sleep 0.3; echo kept");
    const reason = new Error("not needed any more");
    abort.abort(reason);
    await assert.rejects(given, reason);
    assert.equal((await kept).stdoutText, "kept\n");
  });

  test("starts nothing for a signal that has fired before", async () => {
    const signal = AbortSignal.abort(new Error("too late"));
    const before = (await sandbox.commands()).length;
    await assert.rejects(sandbox.run("true", { signal }), /too late/);
    await assert.rejects(
      create(node, {}).then((made) => made.run("true", { signal }).finally(() => made.remove())),
      /too late/,
    );
    await assert.rejects(node.client.sandboxes.create({ base: BASE }, { signal }), /too late/);
    assert.equal((await sandbox.commands()).length, before);
    assert.equal((await Array.fromAsync(node.client.sandboxes.list())).length, 1);
  });

  test("ends streams with an error when its client is closed", async () => {
    const client = new Client({ url: node.url, token: node.token });
    const command = await client.sandboxes.use(sandbox.id).start("echo first; sleep 30");
    const output = command.stdout();
    assert.equal(Buffer.from((await output.next()).value ?? []).toString(), "first\n");
    const next = output.next();
    client.close();
    await assert.rejects(next);
    await sandbox.command(command.id).signal("SIGKILL");
  });

  test("tells a removed sandbox from an ended command", async () => {
    const other = await create(node);
    const running = other.run("echo before; sleep 30");
    const outcome = running.then(
      ({ status }) => status.cause,
      (error) => error.kind,
    );
    await other.run("true");
    await other.remove();
    assert.match(await outcome, /^(sandbox-stopped|SandboxLost|NotFound)$/);
    await assert.rejects(other.run("true"), { name: "NotFoundError" });
    await other[Symbol.asyncDispose]();
  });
});
