import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FunctionTurns } from "./turns.ts";

const LIMITS = { running: 2, memoryMiB: 100, queued: 3 };
const NEVER = new AbortController().signal;

/** Work that ends when it is told to. */
function held() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { work: () => promise, end: resolve };
}

test("projects take turns, whoever asks more often", async () => {
  const turns = new FunctionTurns({ ...LIMITS, running: 1, queued: 10 });
  const first = held();
  const order: string[] = [];
  const running = turns.run("a", 1, first.work, NEVER);
  const ask = (project: string, name: string) => turns.run(project, 1, async () => order.push(name), NEVER);
  const rest = [ask("a", "a1"), ask("a", "a2"), ask("a", "a3"), ask("b", "b1"), ask("b", "b2")];
  first.end();
  await Promise.all([running, ...rest]);
  assert.deepEqual(order, ["a1", "b1", "a2", "b2", "a3"]);
});

test("too many that wait are turned away with a time to come back", async () => {
  const turns = new FunctionTurns({ ...LIMITS, running: 1, queued: 1 });
  const first = held();
  const running = [turns.run("a", 1, first.work, NEVER), turns.run("a", 1, async () => undefined, NEVER)];
  await assert.rejects(
    turns.run("b", 1, async () => undefined, NEVER),
    (error: { kind: string; details: { retryAfterMs: number } }) => {
      assert.equal(error.kind, "Overloaded");
      return error.details.retryAfterMs > 0;
    },
  );
  first.end();
  await Promise.all(running);
  assert.deepEqual([turns.running, turns.queued], [0, 0]);
});

test("a call whose memory cannot fit is refused, and one that does not fit yet is not overtaken", async () => {
  const turns = new FunctionTurns(LIMITS);
  await assert.rejects(
    turns.run("a", 101, async () => undefined, NEVER),
    { kind: "InvalidArgument" },
  );
  const first = held();
  const order: string[] = [];
  const running = turns.run("a", 60, first.work, NEVER);
  const large = turns.run("a", 90, async () => order.push("large"), NEVER);
  const small = turns.run("b", 1, async () => order.push("small"), NEVER);
  assert.equal(turns.queued, 2);
  first.end();
  await Promise.all([running, large, small]);
  assert.deepEqual(order, ["large", "small"]);
});

test("who leaves the line is told its reason, and holds nobody up", async () => {
  const turns = new FunctionTurns({ ...LIMITS, running: 1 });
  const first = held();
  const running = turns.run("a", 1, first.work, NEVER);
  const leaver = new AbortController();
  const left = turns.run("a", 1, async () => undefined, leaver.signal);
  const behind = turns.run("a", 1, async () => "ran", NEVER);
  leaver.abort(new Error("left"));
  await assert.rejects(left, /left/);
  first.end();
  assert.equal(await behind, "ran");
  await running;
});

test("whatever is asked for, limits hold and everybody has a turn", async () => {
  const asks = fc.array(
    fc.record({ project: fc.constantFrom("a", "b", "c"), memoryMiB: fc.integer({ min: 1, max: 100 }) }),
  );
  await fc.assert(
    fc.asyncProperty(asks, async (wanted) => {
      const turns = new FunctionTurns({ running: 2, memoryMiB: 100, queued: wanted.length });
      const now = { running: 0, memoryMiB: 0 };
      const ran = wanted.map(({ project, memoryMiB }) =>
        turns.run(
          project,
          memoryMiB,
          async () => {
            now.running += 1;
            now.memoryMiB += memoryMiB;
            assert.ok(now.running <= 2 && now.memoryMiB <= 100);
            await Promise.resolve();
            now.running -= 1;
            now.memoryMiB -= memoryMiB;
          },
          NEVER,
        ),
      );
      await Promise.all(ran);
      assert.deepEqual([turns.running, turns.queued], [0, 0]);
    }),
  );
});

test("a project cannot keep others out of the line: its last gives way to one who has less in it", async () => {
  const turns = new FunctionTurns({ running: 1, memoryMiB: 100, queued: 4 });
  const first = held();
  const running = turns.run("a", 1, first.work, NEVER);
  const order: string[] = [];
  const ask = (project: string, name: string) => turns.run(project, 1, async () => order.push(name), NEVER);
  const waiting = ["a1", "a2", "a3", "a4"].map((name) => ask("a", name));
  const b = [ask("b", "b1"), ask("b", "b2")];
  await Promise.all([waiting[3], waiting[2]].map((given) => assert.rejects(given ?? running, { kind: "Overloaded" })));
  await assert.rejects(ask("b", "b3"), { kind: "Overloaded" });
  await assert.rejects(ask("a", "a5"), { kind: "Overloaded" });
  first.end();
  await Promise.all([running, waiting[0], waiting[1], ...b]);
  assert.deepEqual(order, ["a1", "b1", "a2", "b2"]);
  assert.deepEqual([turns.running, turns.queued], [0, 0]);
});
