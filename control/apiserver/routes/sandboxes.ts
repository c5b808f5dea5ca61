import type { ServerResponse } from "node:http";
import { asSandboxError } from "#core/errors.ts";
import { type EdgeId, edgeOf, type SandboxId } from "#core/ids.ts";
import type { Lifetime, SandboxInfo } from "#core/sandbox.ts";
import type { Principal } from "../../iam/iam.ts";
import { firstSandboxesOf } from "../../sandbox-list.ts";
import type { Watcher } from "../../watcher/watcher.ts";
import type { Handlers, Services } from "../handler.ts";
import { sandboxView } from "../views.ts";

const DEFAULT_PAGE = 200;
const UNDO_LIMIT_MS = 30_000;

type Names =
  | "createSandbox"
  | "listSandboxes"
  | "inspectSandbox"
  | "extendSandbox"
  | "pauseSandbox"
  | "resumeSandbox"
  | "removeSandbox";

/** The calls about sandboxes as a whole. */
export function sandboxHandlers(services: Services): Pick<Handlers, Names> {
  const { access, creator, watcher } = services;
  return {
    async createSandbox({ principal: { project }, body, idempotencyKey, response, scope: { signal } }) {
      const info = await creator.create({ project, request: body, idempotencyKey, signal });
      if (idempotencyKey === undefined) removeUnheard(info.spec.id, response, services);
      access.remember(info.spec.id, project);
      return sandboxView(info);
    },

    async listSandboxes({ principal, query, scope: { signal } }) {
      const { cursor, limit = DEFAULT_PAGE } = query;
      // One more than is shown: it tells whether more follow.
      const asked = { principal, label: query.label ?? [], signal, after: cursor, limit: limit + 1 };
      return page(await answersOf(watcher, asked), limit);
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

    async pauseSandbox({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return sandboxView(await node.pause(id, signal));
    },

    async resumeSandbox({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return sandboxView(await node.resume(id, signal));
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

/**
 * A client without a key that leaves while the answer is on its way will never know the id, and cannot ask again: the sandbox
 * goes. Whether a client has read what was sent nobody can tell; who cares sends a key, or an idle timeout.
 */
export function removeUnheard(id: SandboxId, response: ServerResponse, { log, watcher }: Services): void {
  response.once("close", () => {
    if (response.writableFinished) return;
    watcher
      .node(edgeOf(id))
      .destroy(id, AbortSignal.timeout(UNDO_LIMIT_MS))
      .catch((error: unknown) =>
        log.warn({ err: error, sandbox: id }, "a sandbox that nobody heard of was not removed"),
      );
  });
}

/** What one node has of the sandboxes asked for; undefined when it did not answer. */
export type Answer =
  | { readonly edge: EdgeId; readonly sandboxes: readonly SandboxInfo[] }
  | { readonly edge: EdgeId; readonly sandboxes: undefined };

/** Which sandboxes of every node to look for. */
export interface Asked {
  readonly principal: Principal;
  /** Each `name=value`. */
  readonly label: readonly string[];
  /** Only ids behind this one. */
  readonly after?: string | undefined;
  /** Most of each node. */
  readonly limit?: number;
  readonly signal: AbortSignal;
}

/** Every node's sandboxes that the caller may see and that carry every label, each in the order of ids. */
export async function answersOf(watcher: Watcher, asked: Asked): Promise<readonly Answer[]> {
  const { principal, signal } = asked;
  const labels = Object.fromEntries(asked.label.map(splitLabel));
  const filter = {
    labels,
    limit: asked.limit ?? Number.MAX_SAFE_INTEGER,
    ...(principal.role === "admin" ? {} : { project: principal.project }),
    // A cursor need not be an id that exists: it is only compared.
    ...(asked.after === undefined ? {} : { after: asked.after as SandboxId }),
  };
  const answers = await Promise.all(
    watcher.nodes().map(([edge, node]) => answerOf(edge, () => firstSandboxesOf(node, filter, signal))),
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
function page(answers: readonly Answer[], limit: number) {
  const rest = answers.flatMap(({ sandboxes }) => sandboxes ?? []).sort((a, b) => (a.spec.id < b.spec.id ? -1 : 1));
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
