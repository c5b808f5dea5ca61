import { SandboxError } from "#core/errors.ts";
import type { GuestHello, GuestLink, TaskReport } from "#core/guest.ts";

/**
 * Stands for the agent of a computer whose image has none: what needs one is refused at once, by name. It is there as long as the computer is.
 */
export class NoAgent implements GuestLink {
  readonly hello: GuestHello;
  readonly closed: Promise<void>;
  readonly #close: () => void;

  /** `name` tells this computer from every other; `ended` resolves with its end. */
  constructor(name: string, ended: Promise<void>) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.hello = { protocol: 0, bootId: name, pid: 0 };
    this.closed = promise;
    this.#close = resolve;
    void ended.then(resolve);
  }

  async start(): Promise<never> {
    throw new SandboxError(
      "FailedPrecondition",
      "the image of this full VM carries no agent: it has no commands, files and ports",
      {
        hint: "use its screen, keyboard, mouse and console",
      },
    );
  }

  async list(): Promise<readonly TaskReport[]> {
    return [];
  }

  attach(): void {
    throw new Error("a computer without an agent has no tasks");
  }

  async writeStdin(): Promise<void> {}

  closeStdin(): void {}

  async takeInput(): Promise<number> {
    return 0;
  }

  resize(): void {}

  signal(): void {}

  acknowledge(): void {}

  forget(): void {}

  async ping(): Promise<void> {}

  close(): void {
    this.#close();
  }
}
