import type { ForkRequest, PackRequest } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { ForkNodes } from "#core/packing.ts";
import type { ImageConfig } from "#core/sandbox.ts";
import { parseReference } from "#images/reference.ts";
import type { ForkOutcome } from "../../forks.ts";
import { failureOf } from "../failure.ts";
import type { Handlers, Services } from "../handler.ts";
import { artifactView, sandboxView } from "../views.ts";
import { removeUnheard } from "./sandboxes.ts";

type Names = "packSandbox" | "forkSandbox";

/** The calls that make something new of what a sandbox has written. */
export function packingHandlers(services: Services): Pick<Handlers, Names> {
  const { access, catalogue, forks, replies } = services;
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

    async forkSandbox({ principal, params, body, idempotencyKey, response, scope: { signal } }) {
      const parent = await access.reach(principal, params.id ?? "", signal);
      const { count, labels = {}, paused = false, memory = true } = body;
      const nodes = nodesOf(body);
      const named = (id: SandboxId) => {
        if (idempotencyKey === undefined) removeUnheard(id, response, services);
      };
      const wish = {
        project: principal.project,
        parent,
        count,
        labels,
        nodes,
        paused,
        memory,
        idempotencyKey,
        named,
        signal,
      };
      const { frozenMs, outcomes } = await forks.fork(wish);
      return { frozenMs, forks: outcomes.map((outcome, index) => ({ index, ...viewOf(outcome) })) };
    },
  };
}

/** What runs stays on its node. */
function nodesOf({ nodes = "any", paused = false }: ForkRequest): ForkNodes {
  if (!paused) return nodes;
  if (nodes !== "other") return "same";
  throw new SandboxError("InvalidArgument", "a paused fork is on the node of its sandbox, and nodes says other", {
    hint: "pack the sandbox, and create from that snapshot",
    details: { field: "nodes" },
  });
}

function viewOf(outcome: ForkOutcome) {
  return "info" in outcome ? { sandbox: sandboxView(outcome.info) } : { error: failureOf(outcome.error).body.error };
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
