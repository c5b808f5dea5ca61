import { SandboxError } from "#core/errors.ts";

/** Who writes to one command's input: the last who took it; anybody who knows where it is while nobody holds it. */
export class InputClaims {
  #holder: Claim | undefined;
  #everTaken = false;

  /** The input is `writer`'s until the claim is disposed, or displaced by the next. */
  take(writer: string): Claim {
    this.#everTaken = true;
    this.#holder?.displace();
    const claim = new Claim(writer, () => {
      if (this.#holder === claim) this.#holder = undefined;
    });
    this.#holder = claim;
    return claim;
  }

  /**
   * Throws `FailedPrecondition` when the input is another writer's, or when this one, who has not taken it, goes on from an
   * offset that others have passed: its bytes would be skipped as known. `taken` is how far the input is.
   */
  check(writer: string | undefined, offset: number, taken: number): void {
    if (this.#holder !== undefined && this.#holder.writer !== writer) {
      throw new SandboxError("FailedPrecondition", "another writer has taken the input", {
        hint: "attach with input=take to take it back",
      });
    }
    if (this.#everTaken && this.#holder === undefined && offset !== taken) {
      throw new SandboxError("FailedPrecondition", `others have written to the input, which is at ${taken}`, {
        hint: "write from that offset on, or attach with input=take",
        details: { offset: taken },
      });
    }
  }
}

/** One writer's hold on an input. */
class Claim implements Disposable {
  readonly writer: string;
  readonly #displaced = Promise.withResolvers<"displaced">();
  readonly #release: () => void;

  /** Made by `InputClaims`. */
  constructor(writer: string, release: () => void) {
    this.writer = writer;
    this.#release = release;
  }

  /** Resolves when another writer has taken the input. */
  get displaced(): Promise<"displaced"> {
    return this.#displaced.promise;
  }

  displace(): void {
    this.#displaced.resolve("displaced");
  }

  [Symbol.dispose](): void {
    this.#release();
  }
}
