import type { QueryOf } from "#api/index.ts";
import { asSandboxError } from "#core/errors.ts";
import type { EdgeId } from "#core/ids.ts";
import type { Lifetime, SandboxInfo } from "#core/sandbox.ts";
import type { Principal } from "../../iam/iam.ts";
import type { Watcher } from "../../watcher/watcher.ts";
import type { Handlers, Services } from "../handler.ts";
import { sandboxView } from "../views.ts";

const DEFAULT_PAGE = 200;

type Names = "createSandbox" | "listSandboxes" | "inspectSandbox" | "extendSandbox" | "removeSandbox";

/** The calls about sandboxes as a whole. */
export function sandboxHandlers({ access, creator, watcher }: Services): Pick<Handlers, Names> {
  return {
    async createSandbox({ principal: { project }, body, idempotencyKey, scope: { signal } }) {
      const info = await creator.create({ project, request: body, idempotencyKey, signal });
      access.remember(info.spec.id, project);
      return sandboxView(info);
    },

    async listSandboxes({ principal, query, scope: { signal } }) {
      return page(await answersOf(watcher, { principal, label: query.label ?? [], signal }), query);
    },

    async inspectSandbox({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return sandboxView(await node.inspect(id, signal));
    },

    async extendSandbox({ principal, params, body, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { lifetime } = (await node.inspect(id, signal)).spec;
      return sandboxView(await node.extend(id, changed(lifetime, body), signal));
    },

    async removeSandbox({ principal, params, scope: { signal } }) {
      try {
        const { id, node } = await access.reach(principal, params.id ?? "", signal);
        await node.destroy(id, signal);
      } catch (error) {
        // Of what is not there nothing is left: a repeated delete succeeds. For sandboxes of others the answer is the same.
        if (asSandboxError(error).kind !== "NotFound") throw error;
      }
    },
  };
}

/** What one node has of the sandboxes asked for; undefined when it did not answer. */
export type Answer =
  | { readonly edge: EdgeId; readonly sandboxes: readonly SandboxInfo[] }
  | { readonly edge: EdgeId; readonly sandboxes: undefined };

/** Every node's sandboxes that the caller may see and that carry every label (`name=value`). */
export async function answersOf(
  watcher: Watcher,
  asked: { readonly principal: Principal; readonly label: readonly string[]; readonly signal: AbortSignal },
): Promise<readonly Answer[]> {
  const { principal, signal } = asked;
  const labels = Object.fromEntries(asked.label.map(splitLabel));
  const filter = principal.role === "admin" ? { labels } : { labels, project: principal.project };
  const answers = await Promise.all(
    watcher.nodes().map(([edge, node]) => answerOf(edge, () => node.list(filter, signal))),
  );
  signal.throwIfAborted();
  return answers;
}

async function answerOf(edge: EdgeId, ask: () => Promise<readonly SandboxInfo[]>): Promise<Answer> {
  try {
    return { edge, sandboxes: await ask() };
  } catch {
    return { edge, sandboxes: undefined };
  }
}

/** The page after the cursor, in the order of ids: sandboxes that come and go between two pages move no other one. */
function page(answers: readonly Answer[], { cursor, limit = DEFAULT_PAGE }: QueryOf<"listSandboxes">) {
  const rest = answers
    .flatMap(({ sandboxes }) => sandboxes ?? [])
    .filter(({ spec }) => cursor === undefined || spec.id > cursor)
    .sort((a, b) => (a.spec.id < b.spec.id ? -1 : 1));
  const shown = rest.slice(0, limit);
  const last = shown.at(-1)?.spec.id;
  const unreachable = answers.filter(({ sandboxes }) => sandboxes === undefined).map(({ edge }) => edge);
  return {
    sandboxes: shown.map(sandboxView),
    ...(rest.length > shown.length && last !== undefined ? { cursor: last } : {}),
    ...(unreachable.length === 0 ? {} : { unreachable }),
  };
}

function splitLabel(text: string): readonly [string, string] {
  const equals = text.indexOf("=");
  return [text.slice(0, equals), text.slice(equals + 1)];
}

/** Absent leaves a limit as it is, null lifts it. */
function changed(lifetime: Lifetime, patch: { readonly [Name in keyof Lifetime]?: number | null }): Lifetime {
  const pick = (name: keyof Lifetime) => (patch[name] === undefined ? lifetime[name] : (patch[name] ?? undefined));
  return { idleTimeoutMs: pick("idleTimeoutMs"), maxLifetimeMs: pick("maxLifetimeMs") };
}
