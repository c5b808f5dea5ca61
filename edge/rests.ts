import type { Backend, Handle } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { EdgeLog } from "#edge/config.ts";
import type { Timers } from "#edge/waiting/timers.ts";

/** What is asked of a sandbox that may be left alone. */
export interface Restable {
  /** Undefined while somebody uses it, and where it does not run. */
  readonly idleSinceMs: number | undefined;
  /** Throws when it is in another state by now. */
  beside(verb: "use"): { readonly backend: Pick<Backend, "rest">; readonly handle: Handle | undefined };
}

/** What the edge gives. */
export interface RestParts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly log: Pick<EdgeLog, "warn">;
  /** Sandboxes that nobody has used for so long are asked. */
  readonly afterMs: number;
  sandboxes(): Iterable<readonly [SandboxId, Restable]>;
}

const KEY = "rests";
/** What a sandbox can do without it gives up in parts, one each time. */
const MOST_PERIOD_MS = 15_000;
/** Of quarters, so many leave a hundredth and less. What is still there then somebody inside uses again and again. */
const MOST_PARTS = 16;

/** Has sandboxes that nobody uses give up memory, in parts, until there is little left of what they can do without. Looks at all at once: their use moves no timer. */
export class Rests {
  readonly #parts: RestParts;
  /** What each has given up since it was last used. */
  readonly #given = new WeakMap<Restable, { readonly idleSinceMs: number; readonly parts: number }>();
  readonly #underWay = new WeakSet<Restable>();

  constructor(parts: RestParts) {
    this.#parts = parts;
  }

  /** Looks from now on. */
  begin(): void {
    const { afterMs, clock, timers } = this.#parts;
    timers.set(KEY, clock.now() + Math.min(afterMs, MOST_PERIOD_MS), () => {
      for (const [id, sandbox] of this.#parts.sandboxes()) this.#look(id, sandbox);
      this.begin();
    });
  }

  #look(id: SandboxId, sandbox: Restable): void {
    const { idleSinceMs } = sandbox;
    const { afterMs, clock, log } = this.#parts;
    if (idleSinceMs === undefined || clock.now() - idleSinceMs < afterMs) return;
    const given = this.#given.get(sandbox);
    const parts = given?.idleSinceMs === idleSinceMs ? given.parts : 0;
    if (parts >= MOST_PARTS || this.#underWay.has(sandbox)) return;
    this.#underWay.add(sandbox);
    const finish = (hasMore: boolean) => {
      this.#underWay.delete(sandbox);
      this.#given.set(sandbox, { idleSinceMs, parts: hasMore ? parts + 1 : MOST_PARTS });
    };
    rest(sandbox).then(finish, (error: unknown) => {
      finish(false);
      // One that is paused or ends meanwhile needs no rest.
      const isGone = error instanceof SandboxError && error.kind === "SandboxLost";
      if (!isGone) log.warn({ sandbox: id, err: error }, "a sandbox that nobody uses keeps its memory");
    });
  }
}

async function rest(sandbox: Restable): Promise<boolean> {
  const { backend, handle } = sandbox.beside("use");
  return handle !== undefined && backend.rest !== undefined && (await backend.rest(handle));
}
