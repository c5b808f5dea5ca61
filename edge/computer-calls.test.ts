import assert from "node:assert/strict";
import { test } from "node:test";
import type { Backend } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import type { ComputerStream, Computers, InputAction } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { CommandCall } from "./commands/calls.ts";
import { ComputerCalls } from "./computer-calls.ts";
import type { SandboxDriver } from "./driver.ts";

const ID = "st1-aaaaaaaaaaaa" as SandboxId;
const NEVER = new AbortController().signal;

/** The calls of an edge for one sandbox, of which only its backend's computers matter. */
class Calls extends ComputerCalls {
  busy = 0;
  touched = 0;
  readonly #computers: Partial<Computers> | undefined;
  readonly #clock: Clock;

  constructor(computers: Partial<Computers> | undefined, clock: Clock) {
    super();
    this.#computers = computers;
    this.#clock = clock;
  }

  protected calling(_id: SandboxId, signal: AbortSignal): CommandCall {
    const backend = { kind: "vm", ...(this.#computers && { computers: this.#computers }) } as Backend;
    const driver: Partial<SandboxDriver> = {
      spec: { id: ID } as SandboxDriver["spec"],
      leaving: NEVER,
      awake: async () => undefined,
      beside: () => ({ backend, handle: undefined }),
      touch: () => void this.touched++,
      busy: () => {
        this.busy++;
        return { [Symbol.dispose]: () => void this.busy-- };
      },
    };
    return { driver: driver as SandboxDriver, clock: this.#clock, signal };
  }
}

/** Time passes as it is waited for. */
function quickClock(): Clock {
  let nowMs = 0;
  return {
    now: () => nowMs,
    after(ms, action) {
      let done = false;
      queueMicrotask(() => {
        if (done) return;
        nowMs += ms;
        action();
      });
      const stop = () => {
        done = true;
      };
      return { [Symbol.dispose]: stop };
    },
  };
}

/** A screen of 100 points, of which each shows a character: one picture after the other, and then the last for good. */
function showing(...pictures: string[]): Pick<Computers, "screenshot" | "look"> {
  let at = 0;
  const next = () => pictures[Math.min(at++, pictures.length - 1)] ?? "";
  return {
    screenshot: async () => Buffer.from(pictures[Math.min(at, pictures.length - 1)] ?? ""),
    async look() {
      const rgb = Buffer.from([...next().padEnd(100)].flatMap((point) => [0, point.charCodeAt(0), 0]));
      return { width: 100, height: 1, rgb };
    },
  };
}

const AT_ONCE = { settledMs: undefined, waitMs: 0, tolerance: 0 } as const;

test("a screenshot is taken at once, or when the screen has been the same for so long", async () => {
  const calls = new Calls(showing("a", "b", "c", "c"), quickClock());
  const shot = await calls.takeScreenshot(ID, AT_ONCE, NEVER);
  assert.deepEqual([Buffer.from(shot.png).toString(), shot.settled], ["a", true]);
  const settled = await calls.takeScreenshot(ID, { settledMs: 300, waitMs: 10_000, tolerance: 0 }, NEVER);
  assert.deepEqual([Buffer.from(settled.png).toString(), settled.settled], ["c", true]);
  assert.equal(calls.busy, 0);
});

test("a screen that does not settle is shown as it is when the wait is over", async () => {
  const calls = new Calls(showing(...Array.from({ length: 50 }, (_, at) => String(at))), quickClock());
  const { png, settled } = await calls.takeScreenshot(ID, { settledMs: 300, waitMs: 1_000, tolerance: 0 }, NEVER);
  assert.equal(settled, false);
  assert.equal(Buffer.from(png).toString(), "11");
});

test("a cursor that blinks is tolerated, up to the share that is allowed", async () => {
  const blinking = Array.from({ length: 50 }, (_, at) => (at % 2 === 0 ? "text_" : "text "));
  const settles = async (tolerance: number) =>
    (
      await new Calls(showing(...blinking), quickClock()).takeScreenshot(
        ID,
        { settledMs: 500, waitMs: 2_000, tolerance },
        NEVER,
      )
    ).settled;
  assert.deepEqual([await settles(0.01), await settles(0)], [true, false]);
});

test("what changes a little at a time is no screen that is the same", async () => {
  const growing = Array.from({ length: 100 }, (_, at) => "x".repeat(at));
  const calls = new Calls(showing(...growing), quickClock());
  const options = { settledMs: 600, waitMs: 3_000, tolerance: 0.02 };
  assert.equal((await calls.takeScreenshot(ID, options, NEVER)).settled, false);
  // With as much time as twice two points take it passes: that is what was asked for.
  const quick = new Calls(showing(...growing), quickClock());
  assert.equal((await quick.takeScreenshot(ID, { ...options, settledMs: 200 }, NEVER)).settled, true);
});

test("a wait for a screen ends with its caller, and the sandbox is not busy any more", async () => {
  let at = 0;
  const left = new AbortController();
  const screens = showing(...Array.from({ length: 50 }, (_, picture) => String(picture)));
  const look = async () => {
    if (at++ === 3) left.abort(new SandboxError("Cancelled", "left"));
    return screens.look(ID);
  };
  const calls = new Calls({ ...screens, look }, quickClock());
  await assert.rejects(calls.takeScreenshot(ID, { settledMs: 300, waitMs: 60_000, tolerance: 0 }, left.signal), {
    kind: "Cancelled",
  });
  assert.equal(calls.busy, 0);
});

test("backends without screens refuse by name, and values that nobody has are refused", async () => {
  const none = new Calls(undefined, quickClock());
  for (const call of [
    none.computerStatus(ID, NEVER),
    none.powerComputer(ID, "on", NEVER),
    none.takeScreenshot(ID, AT_ONCE, NEVER),
    none.sendInput(ID, [], NEVER),
    none.openChannel(ID, "display", noBytes(), NEVER).next(),
  ]) {
    await assert.rejects(call, { kind: "FailedPrecondition", message: /no screen/ });
  }
  const some = new Calls(showing("a"), quickClock());
  for (const tolerance of [-0.1, 1.1, Number.NaN]) {
    await assert.rejects(some.takeScreenshot(ID, { ...AT_ONCE, tolerance }, NEVER), { kind: "InvalidArgument" });
  }
  await assert.rejects(some.powerComputer(ID, "explode" as "on", NEVER), { kind: "InvalidArgument" });
  await assert.rejects(some.openChannel(ID, "radio" as "display", noBytes(), NEVER).next(), {
    kind: "InvalidArgument",
  });
  const many = Array.from({ length: 257 }, (): InputAction => ({ type: "text", text: "" }));
  await assert.rejects(some.sendInput(ID, many, NEVER), { kind: "InvalidArgument" });
});

test("a channel passes bytes on both ways, and what a person does counts as use", async () => {
  const written: string[] = [];
  const said = Promise.withResolvers<void>();
  let disposed = 0;
  const stream: ComputerStream = {
    bytes: (async function* () {
      yield Buffer.from("hello");
      await said.promise;
    })(),
    async write(bytes) {
      written.push(Buffer.from(bytes).toString());
      said.resolve();
    },
    [Symbol.dispose]: () => void disposed++,
  };
  const calls = new Calls({ channel: async () => stream }, quickClock());
  const incoming = (async function* () {
    yield Buffer.from("key");
  })();
  const pieces: unknown[] = [];
  for await (const piece of calls.openChannel(ID, "console", incoming, NEVER)) {
    pieces.push(typeof piece === "string" ? piece : Buffer.from(piece).toString());
  }
  assert.deepEqual([pieces, written], [["open", "hello", "end"], ["key"]]);
  assert.ok(calls.touched > 0 && disposed > 0);
});

async function* noBytes(): AsyncGenerator<Uint8Array> {}
