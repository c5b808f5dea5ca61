import assert from "node:assert/strict";
import { test } from "node:test";
import { type Holdable, whileHeld } from "./held.ts";

const never = new AbortController().signal;
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A guest that notes what is asked of it, and answers when the test says so. */
class Guest implements Holdable {
  readonly asked: string[] = [];
  readonly answers: (() => void)[] = [];
  #turn: Promise<void> = Promise.resolve();

  async turn(): Promise<Disposable> {
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    await before;
    return { [Symbol.dispose]: resolve };
  }

  hold(): Promise<void> {
    return this.#ask("hold");
  }

  release(): Promise<void> {
    return this.#ask("release");
  }

  #ask(what: string): Promise<void> {
    this.asked.push(what);
    return new Promise((resolve) => this.answers.push(resolve));
  }

  async answer(): Promise<void> {
    await settled();
    this.answers.shift()?.();
    await settled();
  }
}

const left = new Error("left");

/** Somebody who may leave. */
function holder(guest: Holdable, action: () => Promise<string> = async () => "done") {
  const controller = new AbortController();
  const result = whileHeld(guest, controller.signal, async ({ letGo }) => {
    const made = await action();
    await letGo();
    return made;
  });
  result.catch(() => undefined);
  return { result, leave: () => controller.abort(left) };
}

test("who holds a guest and lets it go has what was made, and the next has its turn", async () => {
  const guest = new Guest();
  const [one, two] = [holder(guest), holder(guest)];
  await guest.answer();
  assert.deepEqual(guest.asked, ["hold", "release"]);
  await guest.answer();
  assert.equal(await one.result, "done");
  await guest.answer();
  await guest.answer();
  assert.equal(await two.result, "done");
  assert.deepEqual(guest.asked, ["hold", "release", "hold", "release"]);
});

test("a guest that does not go on keeps nobody longer than they want, and is nobody else's before it has", async () => {
  const guest = new Guest();
  const [one, two, three] = [holder(guest), holder(guest), holder(guest)];
  await guest.answer();
  one.leave();
  two.leave();
  await assert.rejects(one.result, left);
  await assert.rejects(two.result, left);
  await settled();
  // Let go by the first alone, once, and not held again.
  assert.deepEqual(guest.asked, ["hold", "release"]);
  await guest.answer();
  assert.deepEqual(guest.asked, ["hold", "release", "hold"]);
  await guest.answer();
  await guest.answer();
  assert.equal(await three.result, "done");
});

test("one that is held after all, when nobody waits for it any more, goes on before the next holds it", async () => {
  const guest = new Guest();
  const [one, two] = [holder(guest), holder(guest)];
  await settled();
  one.leave();
  await assert.rejects(one.result, left);
  assert.deepEqual(guest.asked, ["hold"]);
  await guest.answer();
  assert.deepEqual(guest.asked, ["hold", "release"]);
  await guest.answer();
  assert.deepEqual(guest.asked, ["hold", "release", "hold"]);
  two.leave();
});

test("one goes on when what it was held for fails, and stays as it is when nobody lets it go", async () => {
  const guest = new Guest();
  const failed = new Error("failed");
  const one = holder(guest, () => Promise.reject(failed));
  await guest.answer();
  await guest.answer();
  await assert.rejects(one.result, failed);
  const kept = whileHeld(guest, never, async () => "kept");
  await guest.answer();
  assert.equal(await kept, "kept");
  assert.deepEqual(guest.asked, ["hold", "release", "hold"]);
});
