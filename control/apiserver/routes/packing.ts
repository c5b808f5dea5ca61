import { createHash } from "node:crypto";
import type { PackRequest } from "#api/index.ts";
import { fromWire } from "#core/errors.ts";
import { edgeOf, newSandboxId, type SandboxId, sandboxIdOf } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { Forked } from "#core/packing.ts";
import type { ImageConfig } from "#core/sandbox.ts";
import { parseReference } from "#images/reference.ts";
import { failureOf } from "../failure.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import { artifactView, sandboxView } from "../views.ts";
import { removeUnheard } from "./sandboxes.ts";

type Names = "packSandbox" | "forkSandbox";

/** The calls that make something new of what a sandbox has written. */
export function packingHandlers(services: Services): Pick<Handlers, Names> {
  const { access, catalogue, replies } = services;
  return {
    async packSandbox({ principal, params, body, idempotencyKey, scope: { signal } }) {
      parseReference(body.name);
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { name, exclude = [], keep = [], labels = {}, consistent = true } = body;
      const { project } = principal;
      return replies.once({ project, key: idempotencyKey, id, request: { packSandbox: body } }, async () => {
        const { spec } = await node.inspect(id, signal);
        const parents = (spec.origin.artifacts ?? []).map(({ digest }) => digest);
        const packed = await node.packDiff(id, { exclude, keep, consistent }, signal);
        const { layers, config, sizeBytes, layer, entries, dataBytes, frozenMs, skipped } = packed;
        const provenance = `packed from ${id}`;
        const made = { layers, config: configOf(config, body.config), sizeBytes, provenance, parents, labels };
        const kind = config.computer === undefined ? "snapshot" : "vm-image";
        const snapshot = { ...made, kind } as const;
        const artifact = artifactView(await catalogue.put(project, name, snapshot));
        return { artifact, layer, entries, bytes: dataBytes, frozenMs, skipped: { ...skipped } };
      });
    },

    async forkSandbox(call) {
      const { principal, params, body, scope } = call;
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const ids = Array.from({ length: body.count }, (_, index) => childId(id, call, index));
      const children = ids.map((child) => ({ id: child, labels: body.labels ?? {} }));
      if (call.idempotencyKey === undefined) for (const child of ids) removeUnheard(child, call.response, services);
      const { frozenMs, outcomes } = await node.fork(id, children, scope.signal);
      const forks = await Promise.all(ids.map((child, index) => forkView(node, child, index, outcomes, scope.signal)));
      return { frozenMs, forks };
    },
  };
}

/** Under a key the same for every repeat: the node then finds the child that it has. */
function childId(parent: SandboxId, { principal, idempotencyKey }: Call<"forkSandbox">, index: number): SandboxId {
  if (idempotencyKey === undefined) return newSandboxId(edgeOf(parent));
  const seed = JSON.stringify([principal.project, parent, idempotencyKey, index]);
  return sandboxIdOf(edgeOf(parent), createHash("sha256").update(seed).digest());
}

async function forkView(node: Node, id: SandboxId, index: number, outcomes: Forked["outcomes"], signal: AbortSignal) {
  try {
    const error = outcomes[index]?.error;
    if (error !== undefined) throw fromWire(error);
    return { index, sandbox: sandboxView(await node.inspect(id, signal)) };
  } catch (error) {
    signal.throwIfAborted();
    return { index, error: failureOf(error).body.error };
  }
}

/** What is asked for goes over what the sandbox's artifacts say. */
function configOf(config: ImageConfig, asked: PackRequest["config"] = {}): ImageConfig {
  const image = asked.image ?? config.image;
  return {
    env: { ...config.env, ...asked.env },
    user: asked.user ?? config.user,
    workdir: asked.workdir ?? config.workdir,
    ...(image === undefined ? {} : { image }),
    ...(config.computer === undefined ? {} : { computer: config.computer }),
  };
}
