import type { StartCommand, StartQuery } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import { parseCommandId } from "#core/ids.ts";
import type { RunWait } from "#core/node.ts";
import type { CommandSpec, OutputStream } from "#core/sandbox.ts";
import type { Access } from "../../access.ts";
import { argumentOf } from "../bytes.ts";
import { eventFormOf, resumptionOf } from "../event-forms.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import type { CallScope } from "../scope.ts";
import { bodyOf, sendEvents, sendOutput } from "../stream.ts";
import { commandReply, commandView } from "../views.ts";

const DEFAULT_PAGE = 200;
const DEFAULT_INLINE_BYTES = 65_536;

type Names =
  | "startCommand"
  | "listCommands"
  | "waitCommand"
  | "signalCommand"
  | "writeStdin"
  | "resizeTerminal"
  | "readOutput"
  | "attachCommand";

/** How long a start waits, within the call's deadline, and what comes back with it. */
export function runWait({ waitMs = 0, inlineBytes = DEFAULT_INLINE_BYTES }: StartQuery, scope: CallScope): RunWait {
  return { waitMs: scope.withinDeadline(waitMs), inlineBytes };
}

/** The calls about what runs in a sandbox. */
export function commandHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async startCommand({ principal, params, query, body, idempotencyKey, scope }) {
      const spec = commandSpec(body, idempotencyKey);
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const starting = node.startCommand(id, spec, runWait(query, scope), scope.signal);
      return commandReply(await (body.shell === undefined ? starting : starting.catch(withShellHint)));
    },

    async listCommands({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { limit = DEFAULT_PAGE, newestFirst = false } = query;
      const { commands, cursor } = await node.listCommands(id, { limit, cursor: query.cursor, newestFirst }, signal);
      return { commands: commands.map(commandView), ...(cursor === undefined ? {} : { cursor }) };
    },

    async waitCommand({ principal, params, query, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const waitMs = scope.withinDeadline(query.waitMs ?? 0);
      return commandView(await node.waitCommand(id, parseCommandId(params.command ?? ""), waitMs, scope.signal));
    },

    async signalCommand({ principal, params, body, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.signalCommand(id, parseCommandId(params.command ?? ""), String(body.signal), signal);
    },

    async writeStdin({ principal, params, query, request, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const input = { offset: query.offset ?? 0, close: query.close ?? false, bytes: bodyOf(request, scope) };
      return await node.writeStdin(id, parseCommandId(params.command ?? ""), input, scope.signal);
    },

    async resizeTerminal({ principal, params, body, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.resizeTerminal(id, parseCommandId(params.command ?? ""), body, signal);
    },

    async attachCommand() {
      throw new SandboxError("InvalidArgument", "attaching needs a WebSocket", {
        hint: "connect with a WebSocket client; plain HTTP follows the output at …/output/stdout?follow=true",
      });
    },

    readOutput: (call) => sendOutputOf(call, access),
  };
}

/** In the form that the client takes. */
async function sendOutputOf(
  { principal, params, query, request, response, scope }: Call<"readOutput">,
  access: Access,
): Promise<undefined> {
  const stream = streamOf(params.stream);
  const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
  const form = eventFormOf(request.headers);
  const resumption = form === undefined ? undefined : resumptionOf(request.headers);
  const { follow = false, hold = false } = query;
  const read = { stream, offset: resumption ?? query.offset ?? 0, follow, hold };
  const chunks = node.readOutput(id, parseCommandId(params.command ?? ""), read, scope.signal);
  if (form === undefined) await sendOutput(chunks, read, response, scope);
  else await sendEvents(chunks, { ...read, resumed: resumption !== undefined }, { form, response, scope });
}

/** The command that a body asks for. Throws `InvalidArgument` by field. */
export function commandSpec(body: StartCommand, idempotencyKey: string | undefined): CommandSpec {
  return {
    argv: argvOf(body),
    env: body.env ?? {},
    cwd: body.cwd,
    user: body.user,
    stdin: body.stdin ?? (body.terminal === undefined ? "none" : "pipe"),
    terminal: body.terminal,
    timeLimitMs: body.timeLimitMs,
    waitFor: body.waitFor ?? "leader",
    outputCapBytes: body.outputCapBytes,
    idempotencyKey,
  };
}

function argvOf({ argv, shell }: StartCommand): CommandSpec["argv"] {
  if ((argv === undefined) === (shell === undefined)) {
    throw new SandboxError("InvalidArgument", "exactly one of argv and shell must be given in the body", {
      details: { field: "argv" },
    });
  }
  if (shell !== undefined) return ["/bin/sh", "-c", argumentOf(shell, "shell")];
  const parsed = (argv ?? []).map((argument, index) => argumentOf(argument, `argv.${index}`));
  if (parsed[0]?.length === 0) {
    throw new SandboxError("InvalidArgument", "argv.0 is empty", { details: { field: "argv.0" } });
  }
  return parsed;
}

/** Throws the error of a start by shell line, saying what to do where there is no shell. */
export function withShellHint(error: unknown): never {
  if (!(error instanceof SandboxError) || error.kind !== "CommandNotFound") throw error;
  throw new SandboxError("CommandNotFound", "the sandbox has no shell at /bin/sh", {
    cause: error,
    hint: "send argv instead of shell, or add a shell to the base",
    details: error.details,
  });
}

function streamOf(text: string | undefined): OutputStream {
  if (text === "stdout" || text === "stderr") return text;
  throw new SandboxError("NotFound", "a command has the outputs stdout and stderr");
}
