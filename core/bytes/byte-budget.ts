import { SandboxError } from "#core/errors.ts";

/** How much may be held at once. */
export interface ByteLimits {
  /** What is held, for people. */
  readonly what: "results" | "bodies";
  readonly totalBytes: number;
  /** Of one project; less than the total, so that one that does not come for what is its own leaves room for others. */
  readonly projectBytes: number;
  /** Who may wait; more are turned away. */
  readonly waiting: number;
}

/** A share of a budget. Disposing gives it back; safe twice. */
export interface ByteHold extends Disposable {
  /** What is held in truth, once it is known. Never waits. */
  resize(bytes: number): void;
}

interface Waiting {
  readonly project: string;
  readonly bytes: number;
  readonly start: () => void;
}

/**
 * Memory that is held for projects. Who does not fit waits, the first first; those whose own project has its share are overtaken. What is
 * larger than a share is held alone.
 */
export class ByteBudget {
  readonly #limits: ByteLimits;
  readonly #held = new Map<string, number>();
  #heldBytes = 0;
  #waiting: Waiting[] = [];

  constructor(limits: ByteLimits) {
    this.#limits = limits;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Resolves when the bytes may be held; they are given back when the signal aborts, too. Rejects with `Overloaded`, or the signal's reason. */
  async take(project: string, bytes: number, signal: AbortSignal): Promise<ByteHold> {
    signal.throwIfAborted();
    if (this.#fits(project, bytes) && !this.#waiting.some((each) => !this.#isFull(each))) this.#add(project, bytes);
    else await this.#turn(project, bytes, signal);
    const hold = this.#hold(project, bytes, signal);
    if (!signal.aborted) return hold;
    // Its turn came of what its own signal gave back.
    hold[Symbol.dispose]();
    throw signal.reason;
  }

  #turn(project: string, bytes: number, signal: AbortSignal): Promise<void> {
    if (this.#waiting.length >= this.#limits.waiting) throw overloaded(this.#limits.what, this.#waiting.length);
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting = this.#waiting.filter((each) => each !== waiting);
        reject(signal.reason);
        this.#next();
      };
      const start = () => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const waiting = { project, bytes, start };
      this.#waiting.push(waiting);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #hold(project: string, bytes: number, signal: AbortSignal): ByteHold {
    let held = bytes;
    let isOver = false;
    const resize = (now: number) => {
      if (isOver) return;
      this.#add(project, now - held);
      held = now;
      this.#next();
    };
    const release = () => {
      signal.removeEventListener("abort", release);
      resize(0);
      isOver = true;
    };
    signal.addEventListener("abort", release, { once: true });
    return { resize, [Symbol.dispose]: release };
  }

  #next(): void {
    for (let at = 0; at < this.#waiting.length; ) {
      const waiting = this.#waiting[at];
      if (waiting === undefined) return;
      if (this.#fits(waiting.project, waiting.bytes)) {
        this.#waiting.splice(at, 1);
        this.#add(waiting.project, waiting.bytes);
        waiting.start();
      } else if (this.#isFull(waiting)) at += 1;
      // Nobody overtakes who waits for the others: small ones would keep it waiting for ever.
      else return;
    }
  }

  /** Whether it waits for its own project. */
  #isFull({ project, bytes }: { readonly project: string; readonly bytes: number }): boolean {
    const held = this.#held.get(project) ?? 0;
    return held > 0 && held + bytes > this.#limits.projectBytes;
  }

  #fits(project: string, bytes: number): boolean {
    if (this.#isFull({ project, bytes })) return false;
    return this.#heldBytes === 0 || this.#heldBytes + bytes <= this.#limits.totalBytes;
  }

  #add(project: string, bytes: number): void {
    const held = (this.#held.get(project) ?? 0) + bytes;
    if (held === 0) this.#held.delete(project);
    else this.#held.set(project, held);
    this.#heldBytes += bytes;
  }
}

function overloaded(what: ByteLimits["what"], waiting: number): SandboxError {
  const first = what === "results" ? "take the results that are there, and " : "";
  return new SandboxError("Overloaded", `${waiting} calls wait for room for their ${what} already`, {
    hint: `${first}try again after the time in Retry-After`,
    details: { waiting, retryAfterMs: 1_000 },
  });
}
