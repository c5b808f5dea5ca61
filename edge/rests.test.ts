import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import type { Handle } from "#core/backend.ts";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { type Restable, Rests } from "#edge/rests.ts";
import { Timers } from "#edge/waiting/timers.ts";

const AFTER_MS = 60_000;
const PERIOD_MS = 15_000;
const ID = newSandboxId(parseEdgeId("t"));
const HANDLE: Handle = { version: 1, id: ID, opaque: {} };

describe("a sandbox that nobody uses", () => {
  let clock: ManualClock;
  let warnings: string[];
  let asked: number;
  let answer: () => Promise<boolean>;
  let idleSinceMs: number | undefined;
  const sandbox: Restable = {
    get idleSinceMs() {
      return idleSinceMs;
    },
    beside: () => ({
      backend: {
        rest: () => {
          asked += 1;
          return answer();
        },
      },
      handle: HANDLE,
    }),
  };

  /** Time goes by, and what came of it is known. */
  async function pass(ms: number): Promise<void> {
    for (let gone = 0; gone < ms; gone += 1_000) {
      clock.advance(1_000);
      await new Promise(setImmediate);
    }
  }

  function begin(one: Restable = sandbox): void {
    const log = { warn: (_: unknown, message: string) => warnings.push(message) };
    new Rests({ clock, timers: new Timers(clock), log, afterMs: AFTER_MS, sandboxes: () => [[ID, one]] }).begin();
  }

  beforeEach(() => {
    clock = new ManualClock();
    [warnings, asked, answer, idleSinceMs] = [[], 0, () => Promise.resolve(true), clock.now()];
  });

  test("is asked when its time has come, and again as long as there is more to give", async () => {
    begin();
    await pass(AFTER_MS - 1_000);
    assert.equal(asked, 0);
    await pass(1_000 + 3 * PERIOD_MS);
    assert.equal(asked, 4);
    answer = () => Promise.resolve(false);
    await pass(20 * PERIOD_MS);
    assert.equal(asked, 5);
  });

  test("is asked again when it was used again, and never while it is in use", async () => {
    answer = () => Promise.resolve(false);
    begin();
    await pass(2 * AFTER_MS);
    assert.equal(asked, 1);
    idleSinceMs = undefined;
    await pass(2 * AFTER_MS);
    assert.equal(asked, 1);
    idleSinceMs = clock.now();
    await pass(2 * AFTER_MS);
    assert.equal(asked, 2);
  });

  test("that always has more, since it works by itself, is left alone in the end, until it is used again", async () => {
    begin();
    await pass(20 * AFTER_MS);
    assert.equal(asked, 16);
    idleSinceMs = clock.now();
    await pass(AFTER_MS + PERIOD_MS);
    assert.ok(asked > 16);
  });

  test("is not asked twice at once, however long its machine takes", async () => {
    answer = () => new Promise(() => undefined);
    begin();
    await pass(10 * AFTER_MS);
    assert.equal(asked, 1);
  });

  test("that fails is told, and left alone until it is used; one that goes meanwhile is nothing to tell", async () => {
    answer = () => Promise.reject(new SandboxError("Internal", "no"));
    begin();
    await pass(10 * AFTER_MS);
    assert.deepEqual([asked, warnings], [1, ["a sandbox that nobody uses keeps its memory"]]);
    idleSinceMs = clock.now();
    answer = () => Promise.reject(new SandboxError("SandboxLost", "gone"));
    await pass(10 * AFTER_MS);
    assert.deepEqual([asked, warnings.length], [2, 1]);
  });

  test("of a backend without that gives nothing, and that is no fault", async () => {
    begin({ idleSinceMs: clock.now(), beside: () => ({ backend: {}, handle: HANDLE }) });
    await pass(2 * AFTER_MS);
    assert.deepEqual(warnings, []);
  });
});
