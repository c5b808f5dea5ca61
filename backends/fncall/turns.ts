import { SandboxError } from "#core/errors.ts";

/** How many may run, and how many may wait. */
export interface TurnLimits {
  readonly running: number;
  /** Of all that run together. */
  readonly memoryMiB: number;
  readonly queued: number;
}

interface Waiting {
  readonly memoryMiB: number;
  readonly start: () => void;
  readonly giveWay: (error: SandboxError) => void;
}

/**
 * Who runs next: projects take turns, and within one the first comes first. Nobody overtakes whose memory does not fit yet, so
 * that large calls are not starved by small ones. When the line is full, the last of the project that has most in it gives way to one of a
 * project that has less.
 */
export class FunctionTurns {
  readonly #limits: TurnLimits;
  /** In the order in which projects have their next turn. */
  readonly #projects = new Map<string, Waiting[]>();
  #running = 0;
  #memoryMiB = 0;
  #queued = 0;
  /** How long a run takes, smoothed: what a caller that is turned away is told. */
  #runMs = 100;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  get running(): number {
    return this.#running;
  }

  get queued(): number {
    return this.#queued;
  }

  /** Runs `work` at its turn. Rejects with `Overloaded` when too many wait, and with the signal's reason while it waits. */
  async run<T>(project: string, memoryMiB: number, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    if (memoryMiB > this.#limits.memoryMiB) {
      throw new SandboxError(
        "InvalidArgument",
        `a call of ${memoryMiB} MiB on a node with ${this.#limits.memoryMiB} for functions`,
        {
          hint: "ask for less memory, or give the node more (--function-memory)",
        },
      );
    }
    await this.#turn(project, memoryMiB, signal);
    const startedAtMs = performance.now();
    try {
      return await work();
    } finally {
      this.#runMs += (performance.now() - startedAtMs - this.#runMs) / 16;
      this.#running -= 1;
      this.#memoryMiB -= memoryMiB;
      this.#next();
    }
  }

  #turn(project: string, memoryMiB: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#queued === 0 && this.#fits(memoryMiB)) {
      this.#take(memoryMiB);
      return Promise.resolve();
    }
    if (this.#queued >= this.#limits.queued) this.#makePlace(project);
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#drop(project, waiting);
        reject(signal.reason);
        this.#next();
      };
      const start = () => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const giveWay = (error: SandboxError) => {
        signal.removeEventListener("abort", leave);
        reject(error);
      };
      const waiting = { memoryMiB, start, giveWay };
      this.#projects.set(project, [...(this.#projects.get(project) ?? []), waiting]);
      this.#queued += 1;
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  /** Throws `Overloaded` when no other project has more in the line. */
  #makePlace(project: string): void {
    let largest: readonly [string, readonly Waiting[]] = [project, this.#projects.get(project) ?? []];
    const own = largest[1].length;
    for (const each of this.#projects) if (each[1].length > largest[1].length) largest = each;
    const last = largest[1].at(-1);
    if (last === undefined || largest[1].length <= own + 1) throw this.#overloaded();
    const error = this.#overloaded();
    this.#drop(largest[0], last);
    last.giveWay(error);
  }

  #next(): void {
    for (let [turn] = this.#projects; turn !== undefined; [turn] = this.#projects) {
      const [project, [first]] = turn;
      if (first === undefined || !this.#fits(first.memoryMiB)) return;
      this.#drop(project, first);
      const left = this.#projects.get(project);
      // To the end of the line.
      if (left !== undefined) {
        this.#projects.delete(project);
        this.#projects.set(project, left);
      }
      this.#take(first.memoryMiB);
      first.start();
    }
  }

  #drop(project: string, waiting: Waiting): void {
    const left = (this.#projects.get(project) ?? []).filter((each) => each !== waiting);
    if (left.length === 0) this.#projects.delete(project);
    else this.#projects.set(project, left);
    this.#queued -= 1;
  }

  #fits(memoryMiB: number): boolean {
    return this.#running < this.#limits.running && this.#memoryMiB + memoryMiB <= this.#limits.memoryMiB;
  }

  #take(memoryMiB: number): void {
    this.#running += 1;
    this.#memoryMiB += memoryMiB;
  }

  #overloaded(): SandboxError {
    const retryAfterMs = Math.ceil((this.#queued / this.#limits.running) * this.#runMs) + 1;
    return new SandboxError("Overloaded", `${this.#queued} calls wait on this node already`, {
      hint: "try again after the time in Retry-After, or send fewer at once",
      details: { queued: this.#queued, retryAfterMs },
    });
  }
}
