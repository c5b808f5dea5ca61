import { type Static, Type } from "typebox";
import { INPUT_LIMITS, MOUSE_BUTTONS, POWER_ACTIONS } from "#core/computers.ts";
import { DEVICE_PROFILES, FIRMWARES } from "#core/sandbox.ts";
import { BASE, type Operation } from "./operation.ts";
import { closed, described, oneOf } from "./values.ts";

/** What a full virtual machine is made of, as far as it is said. */
export const ComputerRequest = closed({
  firmware: Type.Optional(described(oneOf(FIRMWARES), "What starts it. Default: what its image says.")),
  devices: Type.Optional(
    described(
      oneOf(DEVICE_PROFILES),
      "virtio, or emulated for systems that do not know it. Default: what its image says.",
    ),
  ),
});

/** What a full virtual machine is made of. */
export const ComputerShapeView = closed({
  firmware: oneOf(FIRMWARES),
  devices: oneOf(DEVICE_PROFILES),
  agent: Type.Optional(described(Type.Boolean(), "Its system runs the agent: it has commands and files.")),
});

const Coordinate = Type.Integer({ minimum: 0, maximum: 65_535 });
const Point = closed({ x: Coordinate, y: Coordinate });
const Button = Type.Optional(described(oneOf(MOUSE_BUTTONS), "left unless given."));

const InputActionRequest = Type.Union([
  closed({ type: Type.Literal("text"), text: Type.String({ maxLength: INPUT_LIMITS.textLength }) }),
  closed({
    type: Type.Literal("keys"),
    keys: Type.Array(Type.String({ minLength: 1, maxLength: 32 }), { minItems: 1, maxItems: INPUT_LIMITS.keys }),
  }),
  closed({ type: Type.Literal("move"), to: Point }),
  closed({
    type: Type.Literal("click"),
    at: Point,
    button: Button,
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: INPUT_LIMITS.clicks })),
  }),
  closed({ type: Type.Literal("drag"), from: Point, to: Point, button: Button }),
  closed({
    type: Type.Literal("scroll"),
    at: Point,
    notches: Type.Integer({
      minimum: -INPUT_LIMITS.notches,
      maximum: INPUT_LIMITS.notches,
      description: "Down, or up when negative.",
    }),
  }),
]);

/** What to do at a computer, one after the other: characters and keys are those of a US keyboard, places are points of the screen. */
export const InputRequest = closed({
  actions: Type.Array(InputActionRequest, { minItems: 1, maxItems: INPUT_LIMITS.actions }),
});
export type InputRequest = Static<typeof InputRequest>;

/** What to do to a computer's power; `press` asks its system to shut down. */
export const PowerRequest = closed({ action: oneOf(POWER_ACTIONS) });
export type PowerRequest = Static<typeof PowerRequest>;

/** How a computer is. */
export const ComputerView = closed({
  power: oneOf(["on", "off"]),
  accelerator: described(oneOf(["kvm", "tcg"]), "tcg: its processors run in software."),
  screen: closed({ width: Type.Integer(), height: Type.Integer() }),
});
export type ComputerView = Static<typeof ComputerView>;

const Ms = (maximum: number) => Type.Integer({ minimum: 1, maximum });

/** When to take the picture. */
const ScreenQuery = closed({
  settledMs: Type.Optional(described(Ms(30_000), "Once it has been the same for so long.")),
  tolerance: Type.Optional(
    described(
      Type.Number({ minimum: 0, maximum: 1 }),
      "With settledMs: share of its points that may change all the same, as of a cursor that blinks. Default 0.002.",
    ),
  ),
  waitMs: Type.Optional(described(Ms(50_000), "With settledMs: as it is then, if it does not settle. Default 30000.")),
});

const SANDBOX = "/v1/sandboxes/{id}";

/** The calls about full virtual machines. */
export const COMPUTER_OPERATIONS = {
  inspectComputer: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/computer`,
    summary: "Of a full VM: its power and its screen.",
    reply: ComputerView,
  },
  powerComputer: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/power`,
    summary: "Of a full VM: press its power button, switch it on or off, reset it.",
    body: PowerRequest,
    status: 204,
  },
  takeScreenshot: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/screen`,
    summary: "Of a full VM: its screen as a PNG; the header X-Dsec-Settled says whether it was still.",
    query: ScreenQuery,
    reply: "bytes",
  },
  sendInput: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/input`,
    summary: "Of a full VM: type, press keys, use the mouse; answers when all of it was done.",
    body: InputRequest,
    status: 204,
  },
  openDisplay: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/display`,
    summary: "Of a full VM: a WebSocket with its display, which speaks RFB as VNC does.",
    status: 101,
  },
  openConsole: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/console`,
    summary: "Of a full VM: a WebSocket with its first serial port, from what it said last on.",
    status: 101,
  },
} as const satisfies Record<string, Operation>;
