import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { INPUT_LIMITS, type InputAction } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";
import type { InputEvent } from "#host/vmm/computer.ts";
import { sendInput } from "./input.ts";
import { keyOf, strokesOf } from "./keyboard.ts";

const SCREEN = { width: 101, height: 51 };
const TYPABLE = Array.from({ length: 95 }, (_, at) => String.fromCharCode(32 + at)).concat("\n", "\t");

/** What a computer hears of these actions. */
async function heard(...actions: InputAction[]): Promise<readonly InputEvent[]> {
  const events: InputEvent[] = [];
  const computer = { input: async (moment: readonly InputEvent[]) => void events.push(...moment) };
  await sendInput(computer, actions, async () => SCREEN, new AbortController().signal);
  return events;
}

/** A refusal, with nothing heard before it. */
async function refuses(action: unknown, message: RegExp): Promise<void> {
  let moments = 0;
  const computer = { input: async () => void moments++ };
  const first: InputAction = { type: "keys", keys: ["a"] };
  const call = sendInput(computer, [first, action as InputAction], async () => SCREEN, new AbortController().signal);
  await assert.rejects(call, (error: unknown) => {
    assert.ok(error instanceof SandboxError, String(error));
    assert.match(error.message, message);
    return error.kind === "InvalidArgument";
  });
  assert.equal(moments, 0);
}

describe("the keyboard of a computer", () => {
  test("types every character of a US keyboard with a stroke of its own", () => {
    const strokes = strokesOf(TYPABLE.join("")).map(({ key, shift }) => `${key} ${shift}`);
    assert.equal(new Set(strokes).size, TYPABLE.length);
    assert.deepEqual(strokesOf("aA1!\n"), [
      { key: "a", shift: false },
      { key: "a", shift: true },
      { key: "1", shift: false },
      { key: "1", shift: true },
      { key: "ret", shift: false },
    ]);
  });

  test("refuses every other character by its name, and types nothing of the text", async () => {
    for (const character of ["é", "€", "\u0000", "日", "😀", "\r"])
      await refuses({ type: "text", text: `ab${character}` }, /U\+[0-9A-F]{4}/);
  });

  test("knows keys by their names, in any case, and by the characters on them", () => {
    assert.deepEqual(["Ctrl", "RETURN", "esc", "PageUp", "f12", "super", "a", "A", "/"].map(keyOf), [
      ...["ctrl", "ret", "esc", "pgup", "f12", "meta_l", "a", "a", "slash"],
    ]);
    for (const name of ["hyper", "", "f13", "\n", "constructor", "__proto__"]) {
      assert.throws(() => keyOf(name), { kind: "InvalidArgument" }, name);
    }
  });

  test("presses a chord in its order and lets go in the opposite one", async () => {
    const events = await heard({ type: "keys", keys: ["ctrl", "alt", "delete"] });
    assert.deepEqual(
      events.map((event) => (event.type === "key" ? `${event.key} ${event.down}` : event.type)),
      ["ctrl true", "alt true", "delete true", "delete false", "alt false", "ctrl false"],
    );
  });

  test("never leaves a key held, whatever is typed", async () => {
    const typed = fc.string({ unit: fc.constantFrom(...TYPABLE), maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(typed, async (text) => {
        const held = new Set<string>();
        for (const event of await heard({ type: "text", text })) {
          assert.ok(event.type === "key");
          if (event.down) held.add(event.key);
          else assert.ok(held.delete(event.key));
        }
        assert.equal(held.size, 0);
      }),
      { numRuns: 20 },
    );
  });
});

describe("the mouse of a computer", () => {
  test("clicks, drags and turns its wheel at places of the screen", async () => {
    const place = (x: number, y: number) => ({ type: "place", x, y });
    const press = (button: string, down: boolean) => ({ type: "button", button, down });
    assert.deepEqual(await heard({ type: "click", at: { x: 100, y: 0 }, button: "right", count: 2 }), [
      place(1, 0),
      ...[press("right", true), press("right", false), press("right", true), press("right", false)],
    ]);
    assert.deepEqual(await heard({ type: "scroll", at: { x: 0, y: 50 }, notches: -1 }), [
      place(0, 1),
      ...[press("wheel-up", true), press("wheel-up", false)],
    ]);
    const drag = await heard({ type: "drag", from: { x: 0, y: 0 }, to: { x: 100, y: 50 }, button: "left" });
    assert.deepEqual(drag.slice(0, 2), [place(0, 0), press("left", true)]);
    assert.deepEqual(drag.slice(-2), [place(1, 1), press("left", false)]);
    assert.ok(drag.length > 6, "what is dragged notices");
  });

  test("does not leave the screen, and nothing is done before all of it can be", async () => {
    for (const at of [
      { x: 101, y: 0 },
      { x: 0, y: 51 },
      { x: -1, y: 0 },
      { x: 1.5, y: 0 },
      { x: Number.NaN, y: 0 },
    ]) {
      await refuses({ type: "move", to: at }, /not on the screen/);
    }
    await refuses({ type: "click", at: { x: 0, y: 0 }, button: "fourth", count: 1 }, /button/);
    await refuses({ type: "click", at: { x: 0, y: 0 }, button: "left", count: 99 }, /count/);
    await refuses({ type: "scroll", at: { x: 0, y: 0 }, notches: 0 }, /notches/);
    await refuses({ type: "text", text: "x".repeat(INPUT_LIMITS.textLength + 1) }, /longer/);
    await refuses({ type: "keys", keys: [] }, /keys/);
    await refuses({ type: "dance" }, /type/);
  });
});
