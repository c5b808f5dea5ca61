import { setTimeout as delay } from "node:timers/promises";
import type { InputAction, MouseButton, ScreenPoint } from "#core/computers.ts";
import { INPUT_LIMITS, MOUSE_BUTTONS } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";
import type { Computer, InputEvent } from "#host/vmm/computer.ts";
import { keyOf, strokesOf } from "./keyboard.ts";

/** What happens at one moment, and how long it is left so: a system looks at its keyboard and mouse now and then. */
interface Moment {
  readonly events: readonly InputEvent[];
  readonly holdMs: number;
}

/** Size of a screen in points. */
export interface ScreenSize {
  readonly width: number;
  readonly height: number;
}

/** A keyboard keeps sixteen bytes until they are read: a stroke with shift takes six. */
const STROKE_MS = 25;
const POINTER_MS = 30;
/** Places between the two ends of a drag: what is dragged has to notice. */
const DRAG_STEPS = 8;

/**
 * Does all of it, one after the other. Nothing is done when any of it cannot be: `InvalidArgument` says what. Stops in between when the signal fires, with no
 * key held.
 */
export async function sendInput(
  computer: Pick<Computer, "input">,
  actions: readonly InputAction[],
  screen: () => Promise<ScreenSize>,
  signal: AbortSignal,
): Promise<void> {
  checkAmount(actions);
  const size = actions.some(({ type }) => type !== "text" && type !== "keys")
    ? await screen()
    : { width: 0, height: 0 };
  const steps = actions.map((action) => momentsOf(action, size));
  for (const moments of steps) {
    signal.throwIfAborted();
    for (const { events, holdMs } of moments) {
      await computer.input(events);
      await delay(holdMs);
    }
  }
}

function momentsOf(action: InputAction, size: ScreenSize): readonly Moment[] {
  switch (action.type) {
    case "text":
      return strokesOf(text(action.text)).map(({ key, shift }) => ({
        events: strike(shift ? ["shift", key] : [key]),
        holdMs: STROKE_MS,
      }));
    case "keys":
      return [{ events: strike(keys(action.keys)), holdMs: STROKE_MS }];
    case "move":
      return [place(action.to, size)];
    case "click":
      return [place(action.at, size), ...clicks(action.button, action.count)];
    case "drag":
      return drag(action, size);
    case "scroll":
      return [place(action.at, size), ...notches(action.notches)];
    default:
      throw refused("type", "is none that there is");
  }
}

/** Down in their order, up in the opposite one, all at one moment: no key can stay held. */
function strike(names: readonly string[]): readonly InputEvent[] {
  const down = names.map((key) => ({ type: "key", key, down: true }) as const);
  return [...down, ...down.map((event) => ({ ...event, down: false })).toReversed()];
}

function press(button: string, down: boolean): Moment {
  return { events: [{ type: "button", button, down }], holdMs: POINTER_MS };
}

function clicks(button: MouseButton, count: number): readonly Moment[] {
  checkButton(button);
  if (!Number.isInteger(count) || count < 1 || count > INPUT_LIMITS.clicks) {
    throw refused("count", `must be 1 to ${INPUT_LIMITS.clicks}`);
  }
  return Array.from({ length: count }, () => [press(button, true), press(button, false)]).flat();
}

function drag({ from, to, button }: Extract<InputAction, { type: "drag" }>, size: ScreenSize): readonly Moment[] {
  checkButton(button);
  const [first, last] = [place(from, size), place(to, size)];
  const between = Array.from({ length: DRAG_STEPS }, (_, index) => {
    const part = (index + 1) / (DRAG_STEPS + 1);
    const x = Math.round(from.x + (to.x - from.x) * part);
    return place({ x, y: Math.round(from.y + (to.y - from.y) * part) }, size);
  });
  return [first, press(button, true), ...between, last, press(button, false)];
}

function notches(count: number): readonly Moment[] {
  if (!Number.isInteger(count) || count === 0 || Math.abs(count) > INPUT_LIMITS.notches) {
    throw refused(
      "notches",
      `must be a whole number from -${INPUT_LIMITS.notches} to ${INPUT_LIMITS.notches}, and not 0`,
    );
  }
  const button = count > 0 ? "wheel-down" : "wheel-up";
  return Array.from({ length: Math.abs(count) }, () => [press(button, true), press(button, false)]).flat();
}

function place({ x, y }: ScreenPoint, { width, height }: ScreenSize): Moment {
  const inside = Number.isInteger(x) && Number.isInteger(y) && x >= 0 && y >= 0 && x < width && y < height;
  if (!inside) throw refused("x, y", `${x}, ${y} is not on the screen, which has ${width} by ${height} points`);
  const at = (value: number, length: number) => (length > 1 ? value / (length - 1) : 0);
  return { events: [{ type: "place", x: at(x, width), y: at(y, height) }], holdMs: POINTER_MS };
}

function checkAmount(actions: readonly InputAction[]): void {
  const length = actions.reduce((sum, action) => sum + (action.type === "text" ? text(action.text).length : 0), 0);
  if (length > INPUT_LIMITS.textLength) throw refused("text", `is longer than ${INPUT_LIMITS.textLength} characters`);
}

function text(value: string): string {
  if (typeof value !== "string") throw refused("text", "must be text");
  return value;
}

function keys(names: readonly string[]): readonly string[] {
  if (!Array.isArray(names) || names.length === 0 || names.length > INPUT_LIMITS.keys) {
    throw refused("keys", `must be 1 to ${INPUT_LIMITS.keys} names`);
  }
  return names.map((name) => keyOf(String(name)));
}

function checkButton(button: MouseButton): void {
  if (!MOUSE_BUTTONS.includes(button)) throw refused("button", `must be one of ${MOUSE_BUTTONS.join(", ")}`);
}

function refused(field: string, what: string): SandboxError {
  return new SandboxError("InvalidArgument", `${field} ${what}`, { details: { field } });
}
