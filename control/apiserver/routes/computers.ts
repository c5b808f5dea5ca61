import type { InputRequest } from "#api/index.ts";
import type { InputAction } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";
import type { Handlers, Services } from "../handler.ts";

type Names = "inspectComputer" | "powerComputer" | "takeScreenshot" | "sendInput" | "openDisplay" | "openConsole";

const SETTLE_WAIT_MS = 30_000;
/** A few characters of a console, the clock of a desktop. */
const SETTLE_TOLERANCE = 0.002;

/** The calls about the screen, the keyboard and the power of full virtual machines; connections are in `channels/`. */
export function computerHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async inspectComputer({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { power, accelerator, screen } = await node.computerStatus(id, signal);
      return { power, accelerator, screen: { ...screen } };
    },

    async powerComputer({ principal, params, body: { action }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.powerComputer(id, action, signal);
    },

    async takeScreenshot({ principal, params, query, response, scope }) {
      const { settledMs, waitMs = SETTLE_WAIT_MS, tolerance = SETTLE_TOLERANCE } = query;
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const options = { settledMs, waitMs: scope.withinDeadline(waitMs), tolerance };
      const { png, settled } = await node.takeScreenshot(id, options, scope.signal);
      response.writeHead(200, {
        "content-type": "image/png",
        "content-length": png.length,
        "x-dsec-settled": String(settled),
      });
      response.end(png);
    },

    async sendInput({ principal, params, body: { actions }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.sendInput(id, actions.map(actionOf), signal);
    },

    async openDisplay() {
      throw needsWebSocket("a display", "noVNC and the like; plain HTTP has pictures at …/screen");
    },

    async openConsole() {
      throw needsWebSocket("a console", "dsec console");
    },
  };
}

function needsWebSocket(what: string, hint: string): SandboxError {
  return new SandboxError("InvalidArgument", `${what} needs a WebSocket`, {
    hint: `connect with a WebSocket client: ${hint}`,
  });
}

function actionOf(action: InputRequest["actions"][number]): InputAction {
  switch (action.type) {
    case "click":
      return { ...action, button: action.button ?? "left", count: action.count ?? 1 };
    case "drag":
      return { ...action, button: action.button ?? "left" };
    default:
      return action;
  }
}
