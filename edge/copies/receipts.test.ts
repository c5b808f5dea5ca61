import assert from "node:assert/strict";
import { test } from "node:test";
import { Receipts } from "./receipts.ts";

function recorded() {
  const said: string[] = [];
  const link = {
    acknowledge: (number: number, stream: string, offset: number) => void said.push(`${number} ${stream} ${offset}`),
    forget: (number: number) => void said.push(`forget ${number}`),
  };
  return { said, receipts: new Receipts(() => link) };
}

test("receipts that are held are told when the last lets go: the latest of each stream, ends last", () => {
  const { said, receipts } = recorded();
  receipts.acknowledge(1, "stdout", 5);
  const first = receipts.hold();
  const second = receipts.hold();
  receipts.acknowledge(1, "stdout", 7);
  receipts.acknowledge(1, "stdout", 9);
  receipts.acknowledge(1, "stderr", 2);
  receipts.forget(1);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  assert.deepEqual(said, ["1 stdout 5"]);
  second[Symbol.dispose]();
  assert.deepEqual(said.slice(1), ["1 stdout 9", "1 stderr 2", "forget 1"]);
  receipts.forget(2);
  assert.equal(said.at(-1), "forget 2");
});

test("a link that was made anew meanwhile has told everything: nothing is told again, and who holds hears of it", () => {
  const { said, receipts } = recorded();
  const held = receipts.hold();
  assert.equal(held.whole, true);
  receipts.acknowledge(1, "stdout", 7);
  receipts.renew();
  assert.equal(held.whole, false);
  held[Symbol.dispose]();
  assert.deepEqual(said, []);
});
