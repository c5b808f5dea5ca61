import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { FileDigest } from "#core/files.ts";
import { newCommandId, type SandboxId } from "#core/ids.ts";
import type { CommandPage, CommandResult, Node, OutputRead } from "#core/node.ts";
import type { CommandSpec, FileInfo, OutputStream, SandboxSpec } from "#core/sandbox.ts";
import { forksOfNode, packingOfNode } from "#core/suites/node-packing-suite.ts";
import { portsOfNode } from "#core/suites/node-ports-suite.ts";

/** What the suite needs to put a node to the test. Made anew for each test, and disposed after it. */
export interface NodeRig extends AsyncDisposable {
  readonly node: Node;
  /** A sandbox that this node can make, with a new id. Its guest has `true`, `false`, `echo`, `cat`, `sleep` and `env`. */
  spec(): SandboxSpec;
  /** Sees to it that a server in the sandbox echoes on port 7, and none is on port 9. */
  serveEcho(id: SandboxId): Promise<void>;
}

const soon = () => AbortSignal.timeout(30_000);
const MIB = 1024 * 1024;

/** The promises of `Node`, as tests: they hold for an edge and for every way to reach it. */
export function nodeContract(name: string, make: () => Promise<NodeRig>): void {
  describe(`${name} keeps the Node contract`, () => {
    let rig: NodeRig;
    beforeEach(async () => {
      rig = await make();
    });
    afterEach(() => rig[Symbol.asyncDispose]());
    const ready = async (): Promise<{ node: Node; id: SandboxId }> => {
      const { id } = (await rig.node.create(rig.spec(), soon())).spec;
      return { node: rig.node, id };
    };

    sandboxes(() => rig, ready);
    commands(ready);
    streams(ready);
    files(ready);
    packingOfNode(ready);
    forksOfNode(() => rig);
    portsOfNode(async () => {
      const { node, id } = await ready();
      await rig.serveEcho(id);
      return { node, id };
    });
  });
}

type Ready = () => Promise<{ readonly node: Node; readonly id: SandboxId }>;

function sandboxes(rig: () => NodeRig, ready: Ready): void {
  test("create echoes the spec, counts, and destroy takes everything back", async () => {
    const { node } = rig();
    const spec = rig().spec();
    const info = await node.create(spec, soon());
    assert.deepEqual(JSON.parse(JSON.stringify(info.spec)), JSON.parse(JSON.stringify(spec)));
    assert.equal(info.state, "ready");
    assert.equal((await node.info(soon())).sandboxes, 1);
    assert.equal((await node.inspect(spec.id, soon())).generation, info.generation);
    assert.equal((await node.list({}, soon())).length, 1);
    await node.destroy(spec.id, soon());
    await node.destroy(spec.id, soon());
    assert.equal((await node.info(soon())).sandboxes, 0);
    for (const { expected, found } of await node.resources(soon())) assert.deepEqual([expected, found], [0, 0]);
  });

  test("errors are typed and carry hint and details", async () => {
    const { node, id } = await ready();
    await assert.rejects(node.inspect(rig().spec().id, soon()), { kind: "NotFound" });
    await assert.rejects(node.waitCommand(id, newCommandId(), 0, soon()), { kind: "NotFound" });
    await assert.rejects(node.extend(id, { idleTimeoutMs: -1, maxLifetimeMs: undefined }, soon()), {
      kind: "InvalidArgument",
      details: { field: "idleTimeoutMs" },
    });
    await assert.rejects(node.create({ ...rig().spec(), id, user: "other" }, soon()), { kind: "AlreadyExists" });
  });

  test("usage is one sample, or samples until the sandbox is removed", async () => {
    const { node, id } = await ready();
    const [once, ...more] = await Array.fromAsync(node.usage(id, { periodMs: undefined }, soon()));
    assert.deepEqual([once?.id, once?.oomKills, more.length], [id, 0, 0]);
    assert.equal(once?.limits.pids, rig().spec().resources.pids);
    const watched = node.usage(id, { periodMs: 100 }, soon())[Symbol.asyncIterator]();
    assert.equal((await watched.next()).value?.id, id);
    await node.destroy(id, soon());
    while ((await watched.next()).done !== true);
    await assert.rejects(Array.fromAsync(node.usage(id, { periodMs: undefined }, soon())), { kind: "NotFound" });
  });

  test("extend moves the limits and shows them", async () => {
    const { node, id } = await ready();
    const info = await node.extend(id, { idleTimeoutMs: 60_000, maxLifetimeMs: 120_000 }, soon());
    assert.deepEqual(info.spec.lifetime, { idleTimeoutMs: 60_000, maxLifetimeMs: 120_000 });
  });

  test("a call whose signal has fired is refused", async () => {
    await assert.rejects(rig().node.list({}, AbortSignal.abort()));
    await assert.rejects(rig().node.create(rig().spec(), AbortSignal.abort()));
    assert.equal((await rig().node.list({}, soon())).length, 0);
  });
}

function commands(ready: Ready): void {
  test("a short command returns with its status and its output", async () => {
    const { node, id } = await ready();
    const { command, output } = await run(node, id, ["echo", "a", "b"]);
    assert.deepEqual([command.status?.cause, command.status?.code], ["exited", 0]);
    assert.ok(command.pid > 0);
    assert.equal(Buffer.from(output?.stdout ?? []).toString(), "a b\n");
    assert.equal(output?.stderr.length, 0);
    assert.equal((await run(node, id, ["false"])).command.status?.code, 1);
  });

  test("a program that does not exist is CommandNotFound, and leaves no record", async () => {
    const { node, id } = await ready();
    await assert.rejects(run(node, id, ["no-such-program"]), { kind: "CommandNotFound" });
    assert.equal((await listed(node, id)).length, 0);
  });

  test("bad commands are refused by field", async () => {
    const { node, id } = await ready();
    await assert.rejects(run(node, id, []), { kind: "InvalidArgument", details: { field: "argv" } });
    for (const timeLimitMs of [0, -1]) {
      await assert.rejects(run(node, id, ["true"], { timeLimitMs }), { details: { field: "timeLimitMs" } });
    }
    await assert.rejects(run(node, id, ["a\0b"]), { kind: "InvalidArgument" });
  });

  test("bytes that are not text pass unchanged", async () => {
    const { node, id } = await ready();
    const word = new Uint8Array([0x66, 0xff, 0xfe]);
    const { command } = await run(node, id, ["true", word]);
    assert.deepEqual(command.argv, ["true", word]);
  });

  test("a time limit ends the command and says so", async () => {
    const { node, id } = await ready();
    const { command } = await run(node, id, ["sleep", "100"], { timeLimitMs: 50 });
    assert.equal(command.status?.cause, "timeout");
  });

  test("a signal ends the command, and is no error afterwards", async () => {
    const { node, id } = await ready();
    const { command } = await start(node, id, ["sleep", "100"]);
    assert.equal((await node.waitCommand(id, command.id, 1, soon())).status, undefined);
    await node.signalCommand(id, command.id, "SIGTERM", soon());
    const { status } = await node.waitCommand(id, command.id, 20_000, soon());
    assert.deepEqual([status?.cause, status?.signal, status?.code], ["signaled", "SIGTERM", undefined]);
    await node.signalCommand(id, command.id, "SIGTERM", soon());
    await assert.rejects(node.signalCommand(id, command.id, "SIGNOTHING", soon()), { kind: "InvalidArgument" });
  });

  test("an idempotency key starts one command, however often and at once", async () => {
    const { node, id } = await ready();
    const options = { idempotencyKey: "k" };
    const starts = await Promise.all([1, 2, 3].map(() => start(node, id, ["echo", "x"], options)));
    assert.equal(new Set(starts.map(({ command }) => command.id)).size, 1);
    await node.waitCommand(id, starts[0]?.command.id ?? newCommandId(), 20_000, soon());
    assert.equal((await start(node, id, ["echo", "x"], options)).command.id, starts[0]?.command.id);
    await assert.rejects(start(node, id, ["echo", "y"], options), { kind: "AlreadyExists" });
    assert.equal((await listed(node, id)).length, 1);
  });
}

function streams(ready: Ready): void {
  test("stdin reaches the command, a repeated piece once, and its end ends it", async () => {
    const { node, id } = await ready();
    const { command } = await start(node, id, ["cat"], { stdin: "pipe" });
    const write = (offset: number, text: string, close: boolean) =>
      node.writeStdin(id, command.id, { offset, bytes: from([Buffer.from(text)]), close }, soon());
    assert.deepEqual(await write(0, "one ", false), { offset: 4 });
    assert.deepEqual(await write(2, "e two", false), { offset: 7 });
    await assert.rejects(write(100, "gap", false), { kind: "InvalidArgument" });
    await write(7, "", true);
    assert.equal((await node.waitCommand(id, command.id, 20_000, soon())).status?.code, 0);
    assert.equal(String(await read(node, id, command.id)), "one two");
    await assert.rejects(write(7, "late", false), { kind: "FailedPrecondition" });
  });

  test("megabytes through stdin and stdout come out as they went in", async () => {
    const { node, id } = await ready();
    const bytes = randomBytes(5 * MIB);
    const { command } = await start(node, id, ["cat"], { stdin: "pipe" });
    const reading = read(node, id, command.id, { hold: true });
    await node.writeStdin(id, command.id, { offset: 0, bytes: from([bytes]), close: true }, soon());
    assert.deepEqual(sha(await reading), sha(bytes));
    const { stdout } = await node.waitCommand(id, command.id, 20_000, soon());
    assert.deepEqual([stdout.seen, stdout.kept, stdout.truncated], [5 * MIB, 5 * MIB, false]);
    assert.deepEqual(await read(node, id, command.id, { offset: 5 * MIB - 3 }), bytes.subarray(-3));
  });

  test("output beyond the cap loses its middle, and the gap shows in the offsets", async () => {
    const { node, id } = await ready();
    const bytes = randomBytes(100_000);
    const { command } = await start(node, id, ["cat"], { stdin: "pipe", outputCapBytes: 10_000 });
    await node.writeStdin(id, command.id, { offset: 0, bytes: from([bytes]), close: true }, soon());
    const { stdout } = await node.waitCommand(id, command.id, 20_000, soon());
    assert.deepEqual([stdout.seen, stdout.kept, stdout.truncated], [100_000, 10_000, true]);
    const request: OutputRead = { stream: "stdout", offset: 0, follow: true, hold: false };
    let next = 0;
    const gaps: [number, number][] = [];
    for await (const chunk of node.readOutput(id, command.id, request, soon())) {
      if (chunk.offset !== next) gaps.push([next, chunk.offset]);
      assert.deepEqual(Buffer.from(chunk.bytes), bytes.subarray(chunk.offset, chunk.offset + chunk.bytes.length));
      next = chunk.offset + chunk.bytes.length;
    }
    assert.deepEqual([gaps, next], [[[5_000, 95_000]], 100_000]);
  });

  test("a reader without follow ends at what is there; one that leaves early is let go", async () => {
    const { node, id } = await ready();
    const { command } = await start(node, id, ["cat"], { stdin: "pipe" });
    assert.equal((await read(node, id, command.id, { follow: false })).length, 0);
    const controller = new AbortController();
    const request: OutputRead = { stream: "stdout", offset: 0, follow: true, hold: true };
    const reading = node.readOutput(id, command.id, request, controller.signal)[Symbol.asyncIterator]();
    const first = assert.rejects(Promise.resolve(reading.next()));
    await new Promise((resolve) => setImmediate(resolve));
    controller.abort();
    await first;
  });
}

function files(ready: Ready): void {
  test("a file is written whole, read back in whole and in part, and its digest is told", async () => {
    const { node, id } = await ready();
    const bytes = randomBytes(3 * MIB + 17);
    const path = Buffer.from("/tmp/dir/file");
    const written = await node.writeFile(
      id,
      { path, user: undefined, mode: 0o640, parents: true },
      from([bytes]),
      soon(),
    );
    assert.deepEqual(written, { size: bytes.length, sha256: sha(bytes) });
    const whole = await fileOf(node.readFile(id, { path, user: undefined, offset: 0, length: undefined }, soon()));
    assert.deepEqual([sha(whole.bytes), whole.digest], [sha(bytes), { size: bytes.length, sha256: sha(bytes) }]);
    const part = await fileOf(node.readFile(id, { path, user: undefined, offset: 1_000, length: 100_000 }, soon()));
    assert.deepEqual([part.bytes, part.digest?.size], [bytes.subarray(1_000, 101_000), 100_000]);
    const entry = await node.stat(id, { path, user: undefined }, soon());
    assert.deepEqual(
      [entry.type, entry.size, entry.mode, String(Buffer.from(entry.name))],
      ["file", bytes.length, 0o640, "file"],
    );
  });

  test("a write whose source fails leaves the old file", async () => {
    const { node, id } = await ready();
    const target = { path: Buffer.from("/tmp/kept"), user: undefined, mode: 0o644, parents: true };
    await node.writeFile(id, target, from([Buffer.from("old")]), soon());
    const breaking = (async function* () {
      yield Buffer.from("new");
      throw new Error("the source broke");
    })();
    await assert.rejects(node.writeFile(id, target, breaking, soon()));
    const left = await fileOf(node.readFile(id, { ...target, offset: 0, length: undefined }, soon()));
    assert.equal(left.bytes.toString(), "old");
    const names = await listOf(node, id, "/tmp");
    assert.deepEqual(
      names.map(({ name }) => Buffer.from(name).toString()).filter((name) => name.includes("kept")),
      ["kept"],
    );
  });

  test("directories are made, listed with names as bytes, and removed", async () => {
    const { node, id } = await ready();
    const base = { path: Buffer.from("/tmp/d"), user: undefined };
    await node.changeFile(id, { ...base, type: "mkdir", mode: 0o755, parents: true }, soon());
    const odd = Buffer.concat([base.path, Buffer.from([0x2f, 0xff, 0x0a])]);
    await node.writeFile(id, { ...base, path: odd, mode: 0o600, parents: false }, from([]), soon());
    const entries = await listOf(node, id, "/tmp/d");
    assert.deepEqual(
      entries.map(({ name, type }) => [Buffer.from(name).toString("hex"), type]),
      [["ff0a", "file"]],
    );
    const remove = (recursive: boolean) => node.changeFile(id, { ...base, type: "remove", recursive }, soon());
    await assert.rejects(remove(false), { kind: "FailedPrecondition", details: { errno: "ENOTEMPTY" } });
    await remove(true);
    await assert.rejects(node.stat(id, base, soon()), { kind: "NotFound" });
  });

  test("a change is made, and one that cannot be is refused by field", async () => {
    const { node, id } = await ready();
    const base = { path: Buffer.from("/tmp/a"), user: undefined };
    await node.writeFile(id, { ...base, mode: 0o600, parents: true }, from([Buffer.from("x")]), soon());
    await node.changeFile(id, { ...base, type: "chmod", mode: 0o751 }, soon());
    const move = { ...base, type: "move", target: Buffer.from("/tmp/b"), replace: true, parents: false } as const;
    await node.changeFile(id, move, soon());
    const moved = await node.stat(id, { ...base, path: move.target }, soon());
    assert.deepEqual([moved.mode, moved.size], [0o751, 1]);
    await assert.rejects(node.changeFile(id, move, soon()), { kind: "NotFound" });
    await assert.rejects(node.changeFile(id, { ...base, type: "chmod", mode: 0o10000 }, soon()), {
      details: { field: "mode" },
    });
    await assert.rejects(node.changeFile(id, { ...move, target: Buffer.from("b") }, soon()), {
      details: { field: "target" },
    });
    await assert.rejects(node.changeFile(id, { ...base, type: "chown", owner: "" }, soon()), {
      details: { field: "owner" },
    });
    const list = (depth: number) => collect(node.listFiles(id, { ...base, depth, hidden: true }, soon()));
    for (const depth of [0, 65, 1.5]) await assert.rejects(list(depth), { details: { field: "depth" } });
  });

  test("what cannot be done with a file is a typed error", async () => {
    const { node, id } = await ready();
    const at = (path: string) => ({ path: Buffer.from(path), user: undefined });
    const reading = (path: string) => fileOf(node.readFile(id, { ...at(path), offset: 0, length: undefined }, soon()));
    await assert.rejects(reading("/tmp/missing"), { kind: "NotFound" });
    await assert.rejects(reading("/"), { kind: "InvalidArgument" });
    await assert.rejects(reading("relative"), { kind: "InvalidArgument" });
    const write = { ...at("/tmp/none/x"), mode: 0o644, parents: false };
    await assert.rejects(node.writeFile(id, write, from([Buffer.from("x")]), soon()), { kind: "NotFound" });
  });
}

/** A piece is its reader's only until the next is asked for. */
async function fileOf(
  parts: AsyncIterable<Uint8Array | FileDigest>,
): Promise<{ readonly bytes: Buffer; readonly digest: FileDigest | undefined }> {
  const bytes: Uint8Array[] = [];
  let digest: FileDigest | undefined;
  for await (const part of parts) {
    assert.equal(digest, undefined, "something came after the digest");
    if (part instanceof Uint8Array) bytes.push(Buffer.from(part));
    else digest = part;
  }
  return { bytes: Buffer.concat(bytes), digest };
}

async function listOf(node: Node, id: SandboxId, path: string): Promise<FileInfo[]> {
  const list = { path: Buffer.from(path), user: undefined, depth: 1, hidden: true };
  return (await collect(node.listFiles(id, list, soon()))).flat();
}

/** A command as most tests want it. */
export function aCommand(argv: CommandSpec["argv"], changes: Partial<CommandSpec> = {}): CommandSpec {
  return {
    argv,
    env: {},
    cwd: undefined,
    user: undefined,
    stdin: "none",
    terminal: undefined,
    timeLimitMs: undefined,
    waitFor: "leader",
    outputCapBytes: undefined,
    idempotencyKey: undefined,
    ...changes,
  };
}

function run(
  node: Node,
  id: SandboxId,
  argv: CommandSpec["argv"],
  changes: Partial<CommandSpec> = {},
): Promise<CommandResult> {
  return node.startCommand(id, aCommand(argv, changes), { waitMs: 20_000, inlineBytes: MIB }, soon());
}

function start(
  node: Node,
  id: SandboxId,
  argv: CommandSpec["argv"],
  changes: Partial<CommandSpec> = {},
): Promise<CommandResult> {
  return node.startCommand(id, aCommand(argv, changes), { waitMs: 0, inlineBytes: 0 }, soon());
}

async function listed(node: Node, id: SandboxId): Promise<CommandPage["commands"]> {
  return (await node.listCommands(id, { limit: 1_000, cursor: undefined, newestFirst: false }, soon())).commands;
}

async function read(
  node: Node,
  id: SandboxId,
  command: CommandResult["command"]["id"],
  changes: Partial<OutputRead & { stream: OutputStream }> = {},
): Promise<Buffer> {
  const request: OutputRead = { stream: "stdout", offset: 0, follow: true, hold: false, ...changes };
  const chunks: Uint8Array[] = [];
  for await (const { bytes } of node.readOutput(id, command, request, soon())) chunks.push(new Uint8Array(bytes));
  return Buffer.concat(chunks);
}

async function* from(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void, undefined> {
  yield* parts;
}

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of source) items.push(item);
  return items;
}

function sha(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
