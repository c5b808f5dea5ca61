import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { afterEach, beforeEach, describe, test } from "node:test";
import { type Backend, type Handle, type Place, RESOURCE_CLASSES, type ResourceClass } from "#core/backend.ts";
import type { GuestLink, TaskEnd } from "#core/guest.ts";
import type { SandboxSpec } from "#core/sandbox.ts";

/** What the suite needs to put a backend to the test. Made anew for each test, and disposed after it. */
export interface BackendRig extends AsyncDisposable {
  readonly backend: Backend;
  /** Another backend for the same node, as after the death of the process of the one before, which is not used again. */
  restart(): Promise<Backend>;
  /** A sandbox that this node can make, with a new id. Its guest has `true`, `echo` and `sleep`. */
  spec(): SandboxSpec;
  /** One that `create` refuses only after it has begun. */
  failingSpec(): SandboxSpec;
  /** How many sandboxes are made at once. */
  readonly atOnce: number;
  /** Ends the sandbox's agent behind the backend's back; resolves when it is gone. */
  killAgent(handle: Handle): Promise<void>;
}

/** For machines that are emulated, too. */
const TIME_LIMIT_MS = 120_000;
const soon = () => AbortSignal.timeout(TIME_LIMIT_MS);

/** The promises of `Backend`, as tests. Every implementation runs them. */
export function backendContract(name: string, make: () => Promise<BackendRig>): void {
  describe(`${name} keeps the Backend contract`, () => {
    let rig: BackendRig;
    beforeEach(async () => {
      rig = await make();
    });
    afterEach(() => rig[Symbol.asyncDispose]());

    creating(() => rig);
    ending(() => rig);
    restarting(() => rig);
  });
}

function creating(rig: () => BackendRig): void {
  test("a created sandbox answers and runs commands", async () => {
    const { backend } = rig();
    const handle = await backend.create(rig().spec(), place(0), soon());
    const link = await backend.connect(handle, soon());
    assert.deepEqual(await run(link, ["echo", "hello"]), { stdout: "hello\n", code: 0 });
    link.close();
    await link.closed;
  });

  test("create is idempotent on the id while the sandbox lives", async () => {
    const { backend } = rig();
    const spec = rig().spec();
    const first = await backend.create(spec, place(0), soon());
    const second = await backend.create(spec, place(0), soon());
    assert.deepEqual(second, first);
    assert.equal(await bootId(backend, second), await bootId(backend, first));
  });

  test("check accepts what can be made and changes nothing", async () => {
    await rig().backend.check(rig().spec());
    await assertCounts(rig().backend, 0);
  });

  test("create that rejects leaves nothing on the node", async () => {
    const { backend } = rig();
    await assert.rejects(backend.create(rig().failingSpec(), place(0), soon()));
    await assertCounts(backend, 0);
  });

  test("an id can be used after a create that rejected", async () => {
    const { backend } = rig();
    const failing = rig().failingSpec();
    await assert.rejects(backend.create(failing, place(0), soon()));
    await backend.create({ ...rig().spec(), id: failing.id }, place(0), soon());
    await assertCounts(backend, 1);
  });

  test("a create that was aborted beforehand leaves nothing", async () => {
    const { backend } = rig();
    await assert.rejects(backend.create(rig().spec(), place(0), AbortSignal.abort()));
    await assertCounts(backend, 0);
  });

  test("an abort at any moment leaves a sandbox or nothing, as create says", async () => {
    const { backend } = rig();
    for (const delayMs of [0, 1, 2, 4, 8]) {
      const spec = rig().spec();
      const made = await backend.create(spec, place(0), AbortSignal.timeout(delayMs)).then(
        () => true,
        () => false,
      );
      await assertCounts(backend, made ? 1 : 0);
      await backend.destroy(spec.id);
    }
  });

  test("sandboxes made at once are all there, each its own, and all go", async () => {
    const { backend } = rig();
    const { atOnce } = rig();
    const specs = Array.from({ length: atOnce }, () => rig().spec());
    const handles = await Promise.all(specs.map((spec, slot) => backend.create(spec, place(slot), soon())));
    await assertCounts(backend, atOnce);
    const boots = await Promise.all(handles.map((handle) => bootId(backend, handle)));
    assert.equal(new Set(boots).size, atOnce);
    await Promise.all(specs.map(({ id }) => backend.destroy(id)));
    await assertCounts(backend, 0);
  });

  test("usage counts the processes of a sandbox", async () => {
    const { backend } = rig();
    const handle = await backend.create(rig().spec(), place(0), soon());
    const link = await backend.connect(handle, soon());
    await run(link, ["true"]);
    const before = (await backend.usage(handle)).pids;
    await startSleeper(link);
    const usage = await backend.usage(handle);
    assert.ok(usage.pids > before, `${before} then ${usage.pids} processes`);
    assert.equal(usage.oomKills, 0);
    link.close();
  });
}

function ending(rig: () => BackendRig): void {
  /** States of a sandbox that a delete may meet. */
  const states: Readonly<Record<string, (backend: Backend, handle: Handle) => Promise<void>>> = {
    "just made": async () => {},
    connected: async (backend, handle) => void (await backend.connect(handle, soon())),
    "running a command": async (backend, handle) => startSleeper(await backend.connect(handle, soon())),
    killed: (backend, handle) => backend.kill(handle.id),
    "without its agent": (_, handle) => rig().killAgent(handle),
  };
  for (const [state, reach] of Object.entries(states)) {
    test(`destroy leaves nothing of a sandbox that is ${state}, and is safe twice`, async () => {
      const { backend } = rig();
      const handle = await backend.create(rig().spec(), place(0), soon());
      await reach(backend, handle);
      await backend.destroy(handle.id);
      await assertCounts(backend, 0);
      await backend.destroy(handle.id);
      await assertCounts(backend, 0);
    });
  }

  test("kill and destroy of an unknown sandbox succeed", async () => {
    const { id } = rig().spec();
    await rig().backend.kill(id);
    await rig().backend.destroy(id);
    await assertCounts(rig().backend, 0);
  });

  test("kill frees the compute, keeps the files, and is safe twice", async () => {
    const { backend } = rig();
    const handle = await backend.create(rig().spec(), place(0), soon());
    await startSleeper(await backend.connect(handle, soon()));
    for (let times = 0; times < 2; times += 1) {
      await backend.kill(handle.id);
      assert.deepEqual(await countsOf(backend, ["processes", "cgroups", "network-namespaces"]), [0, 0, 0]);
      assert.deepEqual(await countsOf(backend, ["uppers"]), [1]);
    }
    assert.equal(await backend.recover(handle), undefined);
    await assert.rejects(backend.connect(handle, soon()), { kind: "SandboxLost" });
  });

  test("the link of a killed sandbox closes, and one without an agent cannot be had", async () => {
    const { backend } = rig();
    const handle = await backend.create(rig().spec(), place(0), soon());
    const link = await backend.connect(handle, soon());
    await rig().killAgent(handle);
    await link.closed;
    await assert.rejects(backend.connect(handle, soon()), { kind: "SandboxLost" });
    assert.equal(await backend.recover(handle), undefined);
  });

  test("an id can be used again after destroy", async () => {
    const { backend } = rig();
    const spec = rig().spec();
    const first = await backend.create(spec, place(0), soon());
    const boot = await bootId(backend, first);
    await backend.destroy(spec.id);
    const second = await backend.create(spec, place(0), soon());
    assert.notEqual(await bootId(backend, second), boot);
    assert.equal(await backend.recover(first), undefined);
  });
}

function restarting(rig: () => BackendRig): void {
  test("a sandbox survives the backend: recover and connect reach the same agent and its commands", async () => {
    const spec = rig().spec();
    const handle = await rig().backend.create(spec, place(0), soon());
    const link = await rig().backend.connect(handle, soon());
    const boot = link.hello.bootId;
    await startSleeper(link);
    const stored: Handle = JSON.parse(JSON.stringify(handle));

    const backend = await rig().restart();
    await assertCounts(backend, 1);
    const recovered = await backend.recover(stored);
    assert.deepEqual(recovered, handle);
    const again = await backend.connect(stored, soon());
    assert.equal(again.hello.bootId, boot);
    assert.deepEqual(
      (await again.list()).map(({ number, end }) => ({ number, end })),
      [{ number: SLEEPER, end: undefined }],
    );
    assert.deepEqual(await backend.create(spec, place(0), soon()), handle);
    again.close();
    await backend.destroy(spec.id);
    await assertCounts(backend, 0);
  });

  test("a sandbox that died meanwhile is not recovered, and can be destroyed by its id alone", async () => {
    const handle = await rig().backend.create(rig().spec(), place(0), soon());
    await rig().killAgent(handle);
    const backend = await rig().restart();
    assert.equal(await backend.recover(handle), undefined);
    await backend.destroy(handle.id);
    await assertCounts(backend, 0);
  });

  test("handles of others are not recovered", async () => {
    const { id } = rig().spec();
    for (const opaque of [{}, { pid: 1 }, { pid: "1", startTicks: null }, { pid: process.pid, startTicks: 1 }]) {
      assert.equal(await rig().backend.recover({ version: 1, id, opaque }), undefined);
    }
  });
}

/** Number of the task that `startSleeper` starts. */
const SLEEPER = 77;

function place(slot: number): Place {
  return { slot };
}

async function bootId(backend: Backend, handle: Handle): Promise<string> {
  const link = await backend.connect(handle, soon());
  link.close();
  return link.hello.bootId;
}

/** Every class of a live sandbox counts exactly so many, every other none. */
async function assertCounts(backend: Backend, expected: number): Promise<void> {
  const inventory = await backend.inventory();
  for (const name of RESOURCE_CLASSES) {
    const wanted = backend.footprint.ready.has(name) ? expected : 0;
    assert.equal(inventory[name].size, wanted, `${name}: ${[...inventory[name]].slice(0, 3)}`);
  }
}

async function countsOf(backend: Backend, classes: readonly ResourceClass[]): Promise<readonly number[]> {
  const inventory = await backend.inventory();
  return classes.map((name) => inventory[name].size);
}

async function startSleeper(link: GuestLink): Promise<void> {
  const sink = { output() {}, ended() {}, end() {} };
  await link.start(SLEEPER, task(["sleep", "1000"]), sink);
}

/** Runs a command to its end. */
export async function run(
  link: GuestLink,
  argv: readonly string[],
): Promise<{ stdout: string; code: number | undefined }> {
  const chunks: Uint8Array[] = [];
  const end = Promise.withResolvers<TaskEnd>();
  // The agent may still know the task of a command before, on a link that was closed.
  const number = randomInt(1_000, 2 ** 31);
  await link.start(number, task(argv), {
    output: (stream, offset, bytes) => {
      if (stream === "stdout") chunks.push(Uint8Array.from(bytes));
      link.acknowledge(number, stream, offset + bytes.length);
    },
    ended() {},
    end: end.resolve,
  });
  const { code } = await end.promise;
  link.forget(number);
  return { stdout: Buffer.concat(chunks).toString(), code };
}

function task(argv: readonly string[]) {
  return {
    action: { type: "exec", argv: argv.map((word) => Buffer.from(word)) },
    user: "0",
    cwd: "/",
    env: { PATH: "/bin:/usr/bin:/sbin" },
    stdin: "none",
    timeLimitMs: undefined,
  } as const;
}
