import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Backend } from "#core/backend.ts";
import type { CellRequest } from "#core/cells.ts";
import { ManualClock } from "#core/clock.ts";
import type { FunctionRuntime } from "#core/functions.ts";
import type { GuestLink, TaskSink } from "#core/guest.ts";
import type { SandboxId } from "#core/ids.ts";
import { FunctionPool } from "./pool.ts";

const RUNTIME: FunctionRuntime = {
  name: "sh",
  layers: [],
  env: {},
  source: "main.sh",
  compile: undefined,
  run: ["sh"],
  warm: undefined,
};
const REQUEST: CellRequest = {
  argv: ["sh"],
  env: {},
  files: [],
  input: new Uint8Array(),
  wanted: [],
  limits: { cpuMs: 1, wallMs: 1, memoryBytes: 1, outputBytes: 1, fileBytes: 1, pids: 1 },
};
/** The result of a program that exited with 0, and what follows when the next cell is there, as a keeper sends them. */
const RESULT = Buffer.concat([Buffer.from([5, 0, 0, 0, 36, 0, 0, 0]), Buffer.from([0, 1]), Buffer.alloc(34)]);
const READY = Buffer.from([7, 0, 0, 0, 0, 0, 0, 0]);
const ENDED = { signal: undefined, cause: "exited", wallMs: 0, cpuMs: 0, maxRssKiB: 0 } as const;

/** Keepers that say what a test makes them say. */
class ScriptedKeepers {
  readonly #sinks = new Map<number, { readonly sink: TaskSink; sent: number }>();
  /** The numbers of those that have had a request that nobody has answered, the oldest first. */
  readonly #asked: number[] = [];
  readonly closed: number[] = [];
  readonly signals: number[] = [];
  readonly clock = new ManualClock();
  readonly log: string[] = [];
  readonly destroyed: string[] = [];
  made = 0;

  readonly #link: Partial<GuestLink> = {
    start: async (number, _task, sink) => {
      this.#sinks.set(number, { sink, sent: 0 });
      return { pid: number };
    },
    writeStdin: async (number) => {
      this.#asked.push(number);
    },
    signal: (_number, signal) => this.signals.push(signal),
    acknowledge: () => undefined,
    closeStdin: (number) => this.closed.push(number),
    forget: () => undefined,
  };

  pool(floor = 1): FunctionPool {
    const backend: Partial<Backend> = {
      create: async (spec) => {
        this.made += 1;
        return { version: 1, id: spec.id, opaque: {} };
      },
      connect: async () => {
        const { promise: closed, resolve: close } = Promise.withResolvers<void>();
        return { ...this.#link, closed, close } as GuestLink;
      },
      destroy: async (id) => {
        this.destroyed.push(id);
      },
    };
    return new FunctionPool({
      backend: backend as Backend,
      host: {
        lease: () => ({ id: `s-${this.made}` as SandboxId, slot: 0, release: () => undefined }),
        isShort: () => false,
      },
      runtime: RUNTIME,
      cpus: 1,
      memoryMiB: 1,
      spaceMiB: 1,
      limits: { floor, ceiling: 4, idleMs: 1_000 },
      clock: this.clock,
      log: (line) => this.log.push(line),
    });
  }

  get started(): number {
    return this.#sinks.size;
  }

  /** What the keeper that was asked first says next. */
  async say(...parts: readonly Buffer[]): Promise<TaskSink> {
    await until(() => this.#asked.length > 0);
    const keeper = this.#sinks.get(this.#asked.shift() ?? 0);
    assert.ok(keeper);
    for (const part of parts) {
      keeper.sink.output("stdout", keeper.sent, part);
      keeper.sent += part.length;
    }
    return keeper.sink;
  }
}

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise(setImmediate);
}

let keepers: ScriptedKeepers;
beforeEach(() => {
  keepers = new ScriptedKeepers();
});
const never = new AbortController().signal;

test("a keeper that goes with its container before it could say that it ended was not unclean", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  await keepers.say(RESULT);
  assert.equal((await call).verdict, "ended");
  // As for a call with `reuse: never`: the container goes at once.
  await pool.close();
  await new Promise(setImmediate);
  assert.deepEqual([keepers.destroyed.length, keepers.log], [1, []]);
});

test("a container in which something may be left of a call is destroyed, and the next call has another", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  const keeper = await keepers.say(RESULT);
  await call;
  keeper.end({ ...ENDED, code: 70 });
  await until(() => keepers.destroyed.length === 1);
  assert.match(keepers.log.join(), /was not clean/);
  const next = pool.run(REQUEST, never);
  await keepers.say(RESULT);
  await next;
  assert.equal(keepers.made, 2);
  await pool.close();
});

test("a call that is given up while it waits for a cell takes none", async () => {
  const pool = keepers.pool(0);
  const leaver = new AbortController();
  const first = pool.run(REQUEST, leaver.signal);
  const second = pool.run(REQUEST, never);
  leaver.abort(new Error("left"));
  await assert.rejects(first, /left/);
  await keepers.say(RESULT);
  assert.equal((await second).verdict, "ended");
  assert.deepEqual(keepers.signals, []);
  await pool.close();
});

test("a keeper serves call after call, and one that has served its last is replaced", async () => {
  const pool = keepers.pool(0);
  for (let round = 0; round < 3; round += 1) {
    const call = pool.run(REQUEST, never);
    await keepers.say(RESULT, READY);
    await call;
  }
  assert.equal(keepers.started, 1);
  const last = pool.run(REQUEST, never);
  (await keepers.say(RESULT)).end({ ...ENDED, code: 0 });
  await last;
  await until(() => keepers.started === 2);
  await pool.close();
  assert.deepEqual([keepers.made, keepers.log], [1, []]);
});

test("as many keepers wait as calls were in use at once, and the floor beyond, but not more than the ceiling", async () => {
  const pool = keepers.pool(2);
  const first = pool.run(REQUEST, never);
  await until(() => keepers.started === 3);
  const more = Array.from({ length: 9 }, () => pool.run(REQUEST, never));
  for (let call = 0; call < 10; call += 1) await keepers.say(RESULT, READY);
  await Promise.all([first, ...more]);
  assert.equal(keepers.started, 4 + 2);
  await pool.close();
});

test("keepers that were needed for a rush leave when it is long past", async () => {
  const pool = keepers.pool(0);
  const rush = Array.from({ length: 4 }, () => pool.run(REQUEST, never));
  for (let call = 0; call < 4; call += 1) await keepers.say(RESULT, READY);
  await Promise.all(rush);
  for (let round = 0; round < 4; round += 1) {
    keepers.clock.advance(10_000);
    const call = pool.run(REQUEST, never);
    await keepers.say(RESULT, READY);
    await call;
  }
  assert.equal(keepers.closed.length, 3);
  await pool.close();
});

test("a keeper that died while it waited costs its call a new try, not a wait", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  const keeper = await keepers.say(RESULT, READY);
  await call;
  keeper.end({ ...ENDED, code: undefined, signal: "SIGKILL", cause: "signaled" });
  await assert.rejects(pool.run(REQUEST, never), { kind: "SandboxLost" });
  await pool.close();
});

test("a keeper that says nothing at all is given up by the node, and its container with it", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  await keepers.say();
  keepers.clock.advance(REQUEST.limits.wallMs + 60_000);
  await assert.rejects(call, { kind: "SandboxLost" });
  await until(() => keepers.destroyed.length === 1);
  await pool.close();
});
