import { SandboxError } from "#core/errors.ts";
import { type EdgeId, edgeOf, parseSandboxId, type SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import { allows, type Principal } from "./iam/iam.ts";
import type { Watcher } from "./watcher/watcher.ts";

/** A sandbox that the caller may use, and the connection to the node that owns it. */
export interface Reach {
  readonly id: SandboxId;
  readonly node: Node;
}

/** Projects remembered; one costs about a hundred bytes. */
const MAX_REMEMBERED = 65_536;

/** Finds the node of a sandbox by its id, and keeps projects apart: what belongs to another one does not exist. */
export class Access {
  readonly #watcher: Watcher;
  /** A sandbox's project never changes and ids are never used again, so an entry cannot become wrong. */
  readonly #projects = new Map<SandboxId, string>();

  constructor(watcher: Watcher) {
    this.#watcher = watcher;
  }

  /** Throws `NotFound` when no such sandbox can exist for the caller. An admin's call is routed without a question. */
  async reach(principal: Principal, text: string, signal: AbortSignal): Promise<Reach> {
    const id = parseSandboxId(text);
    const node = this.#node(edgeOf(id), id);
    if (principal.role === "admin") return { id, node };
    const project = this.#projects.get(id) ?? (await node.inspect(id, signal)).spec.project;
    this.remember(id, project);
    if (!allows(principal, "use", project)) throw unknown(id);
    return { id, node };
  }

  /** Spares the question about a sandbox that was just made or seen. */
  remember(id: SandboxId, project: string): void {
    if (this.#projects.has(id)) return;
    if (this.#projects.size >= MAX_REMEMBERED) {
      const [oldest] = this.#projects.keys();
      if (oldest !== undefined) this.#projects.delete(oldest);
    }
    this.#projects.set(id, project);
  }

  #node(edge: EdgeId, id: SandboxId): Node {
    try {
      return this.#watcher.node(edge);
    } catch (error) {
      if (error instanceof SandboxError && error.kind === "NotFound") throw unknown(id);
      throw error;
    }
  }
}

function unknown(id: SandboxId): SandboxError {
  return new SandboxError("NotFound", `no sandbox ${id}`, {
    hint: "dsec ls shows the ids",
  });
}
