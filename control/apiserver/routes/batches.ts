import { randomUUID } from "node:crypto";
import { type CreateManyEvent, MAX_WAIT_MS, type RemoveManyEvent, type RunManyEvent } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { CommandResult, Node } from "#core/node.ts";
import type { CommandSpec } from "#core/sandbox.ts";
import { pooled } from "../../pool.ts";
import { JSON_LINES } from "../event-forms.ts";
import { failureOf } from "../failure.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import { jsonLines } from "../json-lines.ts";
import { sendBytes } from "../stream.ts";
import { commandReply, sandboxView } from "../views.ts";
import { commandSpec, withShellHint } from "./commands.ts";
import { answersOf } from "./sandboxes.ts";

/** What a node does well at the same time. Commands mostly wait: more of them go together. */
const CREATES_AT_ONCE = 16;
const REMOVALS_AT_ONCE = 16;
const COMMANDS_AT_ONCE = 64;
const DEFAULT_INLINE_BYTES = 16_384;

type Names = "createMany" | "runMany" | "removeMany";

/** The calls about many sandboxes at once. What fails for one is said in its line, and concerns no other. */
export function batchHandlers(services: Services): Pick<Handlers, Names> {
  return {
    async createMany(call) {
      const { count, concurrency = CREATES_AT_ONCE } = call.body;
      const indexes = Array.from({ length: count }, (_, index) => index);
      await send(
        call,
        pooled(indexes, concurrency, (index) => createOne(services, call, index)),
      );
    },

    async runMany(call) {
      const { body, idempotencyKey, principal, scope } = call;
      const { concurrency = COMMANDS_AT_ONCE, inlineBytes = DEFAULT_INLINE_BYTES } = body;
      if (body.command.stdin === "pipe" || body.command.terminal !== undefined) {
        throw new SandboxError("InvalidArgument", "nobody could feed the input of many commands", {
          details: { field: "command.stdin" },
          hint: "start them one by one",
        });
      }
      const spec = commandSpec(body.command, idempotencyKey ?? randomUUID());
      const run = async (text: string): Promise<RunManyEvent> => {
        try {
          const { id, node } = await services.access.reach(principal, text, scope.signal);
          const running = runToEnd(node, { id, spec, inlineBytes }, scope.signal);
          const reply = await (body.command.shell === undefined ? running : running.catch(withShellHint));
          return { sandbox: text, command: commandReply(reply) };
        } catch (error) {
          return { sandbox: text, error: failureOf(error).body.error };
        }
      };
      await send(call, pooled(await meant(services, call), concurrency, run));
    },

    async removeMany(call) {
      const { principal, query, scope } = call;
      const remove = async (id: SandboxId): Promise<RemoveManyEvent> => {
        try {
          const { node } = await services.access.reach(principal, id, scope.signal);
          await node.destroy(id, scope.signal);
          return { sandbox: id };
        } catch (error) {
          return { sandbox: id, error: failureOf(error).body.error };
        }
      };
      const ids = await labelled(services, { principal, label: query.label, signal: scope.signal });
      await send(call, pooled(ids, query.concurrency ?? REMOVALS_AT_ONCE, remove));
    },
  };
}

async function send(call: Pick<Call<Names>, "response" | "scope">, events: AsyncIterable<object>): Promise<void> {
  await sendBytes(
    jsonLines(events, (event) => event),
    call.response,
    call.scope,
    JSON_LINES,
  );
}

async function createOne(
  { access, creator }: Services,
  { principal: { project }, body, idempotencyKey, scope }: Call<"createMany">,
  index: number,
): Promise<CreateManyEvent> {
  // No header can hold the end of a line: such a key is never one that somebody gave to a single create.
  const key = idempotencyKey === undefined ? undefined : `${idempotencyKey}\n${index}`;
  try {
    const info = await creator.create({ project, request: body.sandbox, idempotencyKey: key, signal: scope.signal });
    access.remember(info.spec.id, project);
    return { index, sandbox: sandboxView(info) };
  } catch (error) {
    return { index, error: failureOf(error).body.error };
  }
}

/** The sandboxes that the caller named or described. */
async function meant(services: Services, { body, principal, scope }: Call<"runMany">): Promise<readonly string[]> {
  const { sandboxes, labels } = body;
  if ((sandboxes === undefined) === (labels === undefined)) {
    throw new SandboxError("InvalidArgument", "name either sandboxes or labels", { details: { field: "sandboxes" } });
  }
  if (sandboxes === undefined) {
    const label = Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`);
    return labelled(services, { principal, label, signal: scope.signal });
  }
  // Each once: a command with one key starts once in each.
  return [...new Set(sandboxes)];
}

async function labelled({ watcher }: Services, asked: Parameters<typeof answersOf>[1]): Promise<readonly SandboxId[]> {
  const answers = await answersOf(watcher, asked);
  const silent = answers.filter(({ sandboxes }) => sandboxes === undefined).map(({ edge }) => edge);
  // Who wants all of them must hear that some are not meant.
  if (silent.length > 0) {
    throw new SandboxError("Unavailable", `nodes that may have such sandboxes do not answer: ${silent.join(", ")}`, {
      hint: "try again, or name the sandboxes",
    });
  }
  return answers.flatMap(({ sandboxes = [] }) => sandboxes.map(({ spec }) => spec.id));
}

/**
 * At its end, however long it takes: the command's own limit of time and the caller's patience bound it. The key makes every
 * question after the first one a look at the same command.
 */
async function runToEnd(
  node: Node,
  { id, spec, inlineBytes }: { readonly id: SandboxId; readonly spec: CommandSpec; readonly inlineBytes: number },
  signal: AbortSignal,
): Promise<CommandResult> {
  for (;;) {
    const result = await node.startCommand(id, spec, { waitMs: MAX_WAIT_MS, inlineBytes }, signal);
    if (result.command.status !== undefined) return result;
  }
}
