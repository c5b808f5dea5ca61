import { SandboxError } from "#core/errors.ts";

/** A key of a keyboard, by QEMU's name, and whether shift is held with it. */
export interface Keystroke {
  readonly key: string;
  readonly shift: boolean;
}

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
/** The keys of a US keyboard that are no letters: name, character, character with shift. */
const SYMBOLS: readonly (readonly [key: string, plain: string, shifted: string])[] = [
  ["grave_accent", "`", "~"],
  ["1", "1", "!"],
  ["2", "2", "@"],
  ["3", "3", "#"],
  ["4", "4", "$"],
  ["5", "5", "%"],
  ["6", "6", "^"],
  ["7", "7", "&"],
  ["8", "8", "*"],
  ["9", "9", "("],
  ["0", "0", ")"],
  ["minus", "-", "_"],
  ["equal", "=", "+"],
  ["bracket_left", "[", "{"],
  ["bracket_right", "]", "}"],
  ["backslash", "\\", "|"],
  ["semicolon", ";", ":"],
  ["apostrophe", "'", '"'],
  ["comma", ",", "<"],
  ["dot", ".", ">"],
  ["slash", "/", "?"],
];

const STROKES: ReadonlyMap<string, Keystroke> = new Map<string, Keystroke>([
  ...[...LETTERS].flatMap((letter): [string, Keystroke][] => [
    [letter, { key: letter, shift: false }],
    [letter.toUpperCase(), { key: letter, shift: true }],
  ]),
  ...SYMBOLS.flatMap(([key, plain, shifted]): [string, Keystroke][] => [
    [plain, { key, shift: false }],
    [shifted, { key, shift: true }],
  ]),
  [" ", { key: "spc", shift: false }],
  ["\n", { key: "ret", shift: false }],
  ["\t", { key: "tab", shift: false }],
]);

/** What people call keys, and what QEMU does. */
const NAMES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    ctrl: "ctrl",
    control: "ctrl",
    alt: "alt",
    altgr: "alt_r",
    shift: "shift",
    super: "meta_l",
    win: "meta_l",
    cmd: "meta_l",
    meta: "meta_l",
    menu: "menu",
    enter: "ret",
    return: "ret",
    space: "spc",
    tab: "tab",
    escape: "esc",
    esc: "esc",
    backspace: "backspace",
    delete: "delete",
    del: "delete",
    insert: "insert",
    home: "home",
    end: "end",
    pageup: "pgup",
    page_up: "pgup",
    pagedown: "pgdn",
    page_down: "pgdn",
    up: "up",
    down: "down",
    left: "left",
    right: "right",
    capslock: "caps_lock",
    caps_lock: "caps_lock",
    numlock: "num_lock",
    num_lock: "num_lock",
    scrolllock: "scroll_lock",
    print: "print",
    pause: "pause",
    plus: "equal",
    ...Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`f${index + 1}`, `f${index + 1}`])),
  }),
);

/** How a text is typed on a US keyboard. `InvalidArgument` names the first character that it does not have. */
export function strokesOf(text: string): readonly Keystroke[] {
  return [...text].map((character) => {
    const stroke = STROKES.get(character);
    if (stroke !== undefined) return stroke;
    const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    throw new SandboxError("InvalidArgument", `a US keyboard has no key for ${JSON.stringify(character)} (U+${code})`, {
      details: { character },
      hint: "type what leads to it on the computer's own system, or put it there as a file",
    });
  });
}

/** QEMU's name of a key: a character that stands on it, or what it is called. `InvalidArgument` for others. */
export function keyOf(name: string): string {
  const key = NAMES.get(name.toLowerCase()) ?? STROKES.get(name)?.key;
  if (key !== undefined && name !== "\n" && name !== "\t") return key;
  throw new SandboxError("InvalidArgument", `there is no key ${JSON.stringify(name)}`, {
    details: { key: name },
    hint: `a character of a US keyboard, or one of ${[...NAMES.keys()].join(", ")}`,
  });
}
