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
/** The result of a program that exited with 0, as a keeper sends it. */
const RESULT = Buffer.concat([Buffer.from([5, 0, 0, 0, 36, 0, 0, 0]), Buffer.from([0, 1]), Buffer.alloc(34)]);
const ENDED = { signal: undefined, cause: "exited", wallMs: 0, cpuMs: 0, maxRssKiB: 0 } as const;

/** Keepers that say what a test makes them say. */
class ScriptedKeepers {
  readonly sinks: TaskSink[] = [];
  readonly signals: number[] = [];
  readonly log: string[] = [];
  readonly destroyed: string[] = [];
  readonly #closed = Promise.withResolvers<void>();
  made = 0;

  readonly link: Partial<GuestLink> = {
    closed: this.#closed.promise,
    start: async (_number, _task, sink) => {
      this.sinks.push(sink);
      return { pid: 1 };
    },
    writeStdin: async () => undefined,
    signal: (_number, signal) => this.signals.push(signal),
    acknowledge: () => undefined,
    closeStdin: () => undefined,
    forget: () => undefined,
    close: () => this.#closed.resolve(),
  };

  pool(floor = 1): FunctionPool {
    const backend: Partial<Backend> = {
      create: async (spec) => {
        this.made += 1;
        return { version: 1, id: spec.id, opaque: {} };
      },
      connect: async () => this.link as GuestLink,
      destroy: async (id) => {
        this.destroyed.push(id);
      },
    };
    return new FunctionPool({
      backend: backend as Backend,
      host: { lease: () => ({ id: `s-${this.made}` as SandboxId, slot: 0, release: () => undefined }) },
      runtime: RUNTIME,
      cpus: 1,
      memoryMiB: 1,
      spaceMiB: 1,
      limits: { floor, ceiling: 4, idleMs: 1_000 },
      clock: new ManualClock(),
      log: (line) => this.log.push(line),
    });
  }

  async started(count: number): Promise<void> {
    while (this.sinks.length < count) await new Promise(setImmediate);
  }
}

let keepers: ScriptedKeepers;
beforeEach(() => {
  keepers = new ScriptedKeepers();
});
const never = new AbortController().signal;

test("a keeper that goes with its container before it could say that it ended was not unclean", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  await keepers.started(1);
  keepers.sinks[0]?.output("stdout", 0, RESULT);
  assert.equal((await call).verdict, "ended");
  // As for a call with `reuse: never`: the container goes at once.
  await pool.close();
  await new Promise(setImmediate);
  assert.deepEqual([keepers.destroyed.length, keepers.log], [1, []]);
});

test("a container in which something may be left of a call is destroyed, and the next call has another", async () => {
  const pool = keepers.pool(0);
  const call = pool.run(REQUEST, never);
  await keepers.started(1);
  keepers.sinks[0]?.output("stdout", 0, RESULT);
  await call;
  keepers.sinks[0]?.end({ ...ENDED, code: 70 });
  while (keepers.destroyed.length === 0) await new Promise(setImmediate);
  assert.match(keepers.log.join(), /was not clean/);
  void pool.run(REQUEST, never).catch(() => undefined);
  while (keepers.made < 2) await new Promise(setImmediate);
  await pool.close();
});

test("a call that is given up while it waits for a cell takes none", async () => {
  const pool = keepers.pool(0);
  const leaver = new AbortController();
  const first = pool.run(REQUEST, leaver.signal);
  const second = pool.run(REQUEST, never);
  leaver.abort(new Error("left"));
  await assert.rejects(first, /left/);
  await keepers.started(1);
  keepers.sinks[0]?.output("stdout", 0, RESULT);
  assert.equal((await second).verdict, "ended");
  assert.deepEqual(keepers.signals, []);
  await pool.close();
});
