import type { Backend, Handle } from "#core/backend.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import { type Reached, type ReachOptions, reachAgent } from "#edge/reach.ts";

/** How the agent of a sandbox is reached, and who hears of it. */
export interface ConnectionParts extends ReachOptions {
  readonly backend: Backend;
  /** Gets a link that was made again, before anybody else. */
  readonly take: (reached: Reached) => void;
  /** The link in use is gone, and nobody wanted that. */
  readonly broken: () => void;
}

/** The connection of one sandbox with its agent, which may break and be made again: then calls wait for the next. */
export class AgentConnection {
  readonly #parts: ConnectionParts;
  #link: GuestLink | undefined;
  /** Settles when the agent is reached again, while it is being. */
  #reaching: PromiseWithResolvers<GuestLink> | undefined;
  #bootId: string | undefined;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  get link(): GuestLink | undefined {
    return this.#link;
  }

  /** The link, or the next one while it is being made. */
  async wait(signal: AbortSignal): Promise<GuestLink> {
    if (this.#link !== undefined) return this.#link;
    if (this.#reaching === undefined) throw new Error("a ready sandbox has a link or is getting one");
    return abortable(this.#reaching.promise, signal);
  }

  /** The first link to an agent. That of a copy knows of more than its sandbox. */
  async meet(
    handle: Handle,
    { isCopy, signal }: { readonly isCopy: boolean; readonly signal: AbortSignal },
  ): Promise<void> {
    if (isCopy) await this.reach(handle);
    else this.use(await this.#parts.backend.connect(handle, signal));
  }

  use(link: GuestLink): void {
    this.#link = link;
    this.#bootId = link.hello.bootId;
    void link.closed.then(() => {
      if (this.#link !== link) return;
      this.#link = undefined;
      this.#parts.broken();
    });
  }

  /** Who asks for the agent from now on waits until `reach` or `refuse`. */
  awaitNext(): void {
    if (this.#reaching !== undefined) return;
    this.#reaching = Promise.withResolvers<GuestLink>();
    this.#reaching.promise.catch(() => undefined);
  }

  /** Makes a link. Rejects as `reachAgent` does, and with `SandboxLost` for another agent. */
  async reach(handle: Handle): Promise<void> {
    const reached = await reachAgent(this.#parts.backend, handle, this.#parts);
    if (this.#bootId !== undefined && reached.link.hello.bootId !== this.#bootId) {
      reached.link.close();
      throw new SandboxError("SandboxLost", "the agent of the sandbox was started anew");
    }
    this.use(reached.link);
    this.#parts.take(reached);
    this.#reaching?.resolve(reached.link);
    this.#reaching = undefined;
  }

  /** Lets go of the link, if there is one; `broken` is not told. */
  drop(): void {
    const link = this.#link;
    this.#link = undefined;
    link?.close();
  }

  /** No link will come: tells those who wait why. */
  refuse(error: SandboxError): void {
    this.#reaching?.reject(error);
    this.#reaching = undefined;
  }
}
