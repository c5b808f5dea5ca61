import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { signalNumber } from "#edge/commands/signals.ts";

test("every signal goes by its name, with and without SIG, and by its number", () => {
  for (const [name, number] of Object.entries(constants.signals)) {
    assert.equal(signalNumber(name), number);
    assert.equal(signalNumber(name.slice(3)), number);
    assert.equal(signalNumber(String(number)), number);
  }
});

test("real-time signals count from both ends", () => {
  const known = { SIGRTMIN: 34, "SIGRTMIN+0": 34, "RTMIN+30": 64, SIGRTMAX: 64, "SIGRTMAX-29": 35, "40": 40 };
  for (const [text, number] of Object.entries(known)) assert.equal(signalNumber(text), number, text);
});

test("what is no signal is refused", () => {
  const none = [
    "",
    "SIG",
    "SIGNOTHING",
    "sigterm",
    "0",
    "65",
    "-1",
    "1.5",
    "SIGRTMIN+31",
    "SIGRTMIN-1",
    "SIGRTMAX+1",
    "RTMINX",
  ];
  for (const text of none) assert.throws(() => signalNumber(text), { kind: "InvalidArgument" }, text);
});
