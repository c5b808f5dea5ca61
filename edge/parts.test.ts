import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import fc from "fast-check";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { DEFAULT_RESOURCES } from "#core/sandbox.ts";
import { Admission } from "#edge/admission.ts";
import { errnoError } from "#edge/files/errno.ts";
import { Journal } from "#edge/journal.ts";
import { Interruption } from "#edge/waiting/interruption.ts";
import { OperationQueue } from "#edge/waiting/queue.ts";
import { Timers } from "#edge/waiting/timers.ts";

describe("admission", () => {
  const limit = { cpus: 4, memoryMiB: 1000, sandboxes: 5 };
  const plenty = { reserveMiB: 0, availableMiB: () => 0 };
  const wanted = (cpus: number, memoryMiB: number) => ({ ...DEFAULT_RESOURCES, cpus, memoryMiB });

  test("names what is short and promises nothing then", () => {
    const admission = new Admission(limit, plenty);
    assert.throws(() => admission.admit(wanted(1, 1001)), {
      kind: "NodeFull",
      details: { lacking: "memoryMiB", left: 1000, limit: 1000 },
    });
    assert.throws(() => admission.admit(wanted(4.5, 1)), {
      kind: "NodeFull",
      details: { lacking: "cpus", left: 4, limit: 4 },
    });
    assert.deepEqual(admission.promised, { cpus: 0, memoryMiB: 0, sandboxes: 0 });
  });

  test("promises exactly the limit, in fractions too", () => {
    const admission = new Admission({ ...limit, sandboxes: 100 }, plenty);
    for (let index = 0; index < 40; index += 1) admission.admit(wanted(0.1, 25));
    assert.throws(() => admission.admit(wanted(0.1, 0)), { kind: "NodeFull" });
  });

  test("slots are told ahead, in order, and nobody else gets them", () => {
    const admission = new Admission({ ...limit, sandboxes: 6 }, plenty);
    const first = admission.admit(wanted(0, 0)).slot;
    const told = admission.next(3);
    admission.release(wanted(0, 0), first);
    assert.deepEqual(admission.next(4).slice(0, 3), told);
    assert.deepEqual(
      [1, 2, 3].map(() => admission.admit(wanted(0, 0)).slot),
      told,
    );
    assert.equal(new Set([...told, ...admission.next(100)]).size, 6, "more are told than may exist");
  });

  test("any sequence of admit, fail, release and restart agrees with a list of promises", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("admit" as const), cpus: fc.nat(3), memoryMiB: fc.nat(500) }),
      fc.record({ kind: fc.constantFrom("release" as const, "fail" as const), at: fc.nat(4) }),
      fc.record({ kind: fc.constant("restart" as const) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let admission = new Admission(limit, plenty);
        const model: { slot: number; resources: ReturnType<typeof wanted>; held: boolean }[] = [];
        const sum = (field: "cpus" | "memoryMiB") =>
          model.reduce((total, one) => total + (one.held ? one.resources[field] : 0), 0);
        for (const one of steps) {
          if (one.kind === "admit") {
            const resources = wanted(one.cpus, one.memoryMiB);
            const fits =
              model.length < limit.sandboxes &&
              sum("cpus") + one.cpus <= limit.cpus &&
              sum("memoryMiB") + one.memoryMiB <= limit.memoryMiB;
            if (fits) model.push({ ...admission.admit(resources), resources, held: true });
            else assert.throws(() => admission.admit(resources), { kind: "NodeFull" });
          } else if (one.kind === "restart") {
            admission = new Admission(limit, plenty);
            for (const { resources, slot, held } of model) admission.adopt(held ? resources : undefined, slot);
          } else {
            const target = model[one.at];
            if (target === undefined) continue;
            if (one.kind === "fail" && target.held) {
              target.held = false;
              admission.releaseCompute(target.resources);
            }
            if (one.kind === "release") {
              model.splice(one.at, 1);
              admission.release(target.held ? target.resources : undefined, target.slot);
            }
          }
          assert.equal(new Set(model.map(({ slot }) => slot)).size, model.length);
          const expected = { cpus: sum("cpus"), memoryMiB: sum("memoryMiB"), sandboxes: model.length };
          assert.deepEqual(admission.promised, expected);
        }
      }),
    );
  });
});

describe("timers", () => {
  test("any sequence of set, clear and time fires exactly what a sorted list would", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("set" as const), key: fc.nat(8), inMs: fc.integer({ min: -5, max: 100 }) }),
      fc.record({ kind: fc.constant("clear" as const), key: fc.nat(8) }),
      fc.record({ kind: fc.constant("advance" as const), byMs: fc.nat(60) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const clock = new ManualClock(0);
        const timers = new Timers(clock);
        const model = new Map<string, number>();
        const fired: string[] = [];
        for (const one of steps) {
          if (one.kind === "set") {
            const key = String(one.key);
            timers.set(key, clock.now() + one.inMs, () => fired.push(key));
            model.set(key, clock.now() + one.inMs);
          } else if (one.kind === "clear") {
            timers.clear(String(one.key));
            model.delete(String(one.key));
          } else {
            clock.advance(one.byMs);
            const due = [...model].filter(([, atMs]) => atMs <= clock.now()).map(([key]) => key);
            for (const key of due) model.delete(key);
            assert.deepEqual(fired.splice(0).sort(), due.sort());
          }
          assert.equal(timers.size, model.size);
        }
      }),
    );
  });

  test("fire in the order of their time, and none after disposal", () => {
    const clock = new ManualClock(0);
    const timers = new Timers(clock);
    const fired: number[] = [];
    for (const atMs of [30, 10, 20, 40]) timers.set(String(atMs), atMs, () => fired.push(atMs));
    clock.advance(35);
    timers[Symbol.dispose]();
    clock.advance(100);
    assert.deepEqual(fired, [10, 20, 30]);
  });

  test("a hundred thousand moves of one timer do not pile up", () => {
    const clock = new ManualClock(0);
    const timers = new Timers(clock);
    let fired = 0;
    for (let index = 0; index < 100_000; index += 1) timers.set("one", 1000 + index, () => (fired += 1));
    clock.advance(200_000);
    assert.equal(fired, 1);
  });
});

describe("the queue of a sandbox", () => {
  test("never overlaps two operations, takes events first, and goes on after a failure", async () => {
    const queue = new OperationQueue();
    const order: string[] = [];
    let running = 0;
    const operation = (name: string) => async () => {
      running += 1;
      assert.equal(running, 1);
      await new Promise(setImmediate);
      running -= 1;
      order.push(name);
      if (name === "bad") throw new Error("bad");
    };
    const runs = [
      queue.run("verb", operation("a")),
      assert.rejects(queue.run("verb", operation("bad"))),
      queue.run("verb", operation("b")),
      queue.run("event", operation("event")),
    ];
    await Promise.all(runs);
    assert.deepEqual(order, ["a", "event", "bad", "b"]);
  });
});

describe("the journal", () => {
  function directory(): Disposable & { readonly path: string } {
    const path = mkdtempSync(join(tmpdir(), "dsec-journal-"));
    return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
  }

  test("of a newer release is refused", () => {
    using dir = directory();
    using db = new DatabaseSync(join(dir.path, "journal.db"));
    db.exec("PRAGMA user_version = 999");
    db.close();
    assert.throws(() => Journal.open(dir.path), { kind: "FailedPrecondition", message: /version 999/ });
  });

  test("is refused while held, with the holder's pid, and free at once afterwards", () => {
    using dir = directory();
    const first = Journal.open(dir.path);
    writeFileSync(join(dir.path, "node.pid"), "4242\n");
    assert.throws(() => Journal.open(dir.path), { kind: "FailedPrecondition", message: /pid 4242/ });
    first[Symbol.dispose]();
    Journal.open(dir.path)[Symbol.dispose]();
  });

  test("writes what was put off when it is closed at the latest, unless that was taken back", () => {
    using dir = directory();
    const journal = Journal.open(dir.path);
    const insert = (number: number) => () =>
      journal
        .prepare("INSERT INTO commands (sandbox, number, id, spec, cap, started) VALUES ('s', ?, ?, '', 1, 1)")
        .run(number, `c${number}`);
    journal.putOff(insert(1));
    journal.putOff(insert(2))[Symbol.dispose]();
    journal[Symbol.dispose]();
    using again = Journal.open(dir.path);
    assert.deepEqual(
      again
        .prepare("SELECT number FROM commands")
        .all()
        .map(({ number }) => number),
      [1],
    );
  });

  test("keeps all of a transaction or nothing of it", () => {
    using dir = directory();
    using journal = Journal.open(dir.path);
    const insert = () =>
      journal
        .prepare("INSERT INTO commands (sandbox, number, id, spec, cap, started) VALUES ('s', 1, 'c', '', 1, 1)")
        .run();
    assert.throws(() =>
      journal.transact(() => {
        insert();
        insert();
      }),
    );
    assert.equal(journal.prepare("SELECT count(*) AS n FROM commands").get()?.n, 0);
  });
});

test("every errno of a file operation has a kind a caller can act on", () => {
  const kinds = {
    2: "NotFound",
    13: "PermissionDenied",
    17: "AlreadyExists",
    21: "InvalidArgument",
    28: "SandboxLimit",
  };
  for (const [errno, kind] of Object.entries(kinds)) assert.equal(errnoError(Number(errno), "x").kind, kind);
  assert.match(errnoError(122, "write /x").message, /^write \/x: EDQUOT$/);
  assert.equal(errnoError(9999, "x").kind, "InvalidArgument");
});

test("an interruption ends waits of before and after, and leaves settled ones alone", async () => {
  const stop = new Interruption();
  assert.equal(await stop.guard(Promise.resolve(1)), 1);
  const waiting = assert.rejects(stop.guard(new Promise(() => {})), { kind: "Cancelled" });
  stop.fire(new SandboxError("Cancelled", "enough"));
  stop.fire(new Error("too late"));
  await waiting;
  await assert.rejects(stop.guard(new Promise(() => {})), { kind: "Cancelled" });
});
