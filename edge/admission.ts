import { SandboxError } from "#core/errors.ts";
import type { NodeAmounts } from "#core/node.ts";
import type { Resources } from "#core/sandbox.ts";
import type { EdgeConfig } from "#edge/config.ts";

/** What the node must have left of its memory, as measured, to take another sandbox. */
export interface MemoryReserve {
  readonly reserveMiB: number;
  availableMiB(): number;
}

/** What a node may promise: its capacity times what is configured over it. */
export function overcommitted({ capacity, cpuOvercommit, memoryOvercommit }: EdgeConfig): NodeAmounts {
  const { cpus, memoryMiB, sandboxes } = capacity;
  return { cpus: cpus * cpuOvercommit, memoryMiB: memoryMiB * memoryOvercommit, sandboxes };
}

/**
 * How much of a node is promised, and what more it may promise. Promises are ceilings that sandboxes seldom reach, so most of
 * a node is promised many times over; what is measured stops it before the machine itself runs short.
 */
export class Admission {
  readonly #limit: NodeAmounts;
  readonly #memory: MemoryReserve;
  #promised: NodeAmounts = { cpus: 0, memoryMiB: 0, sandboxes: 0 };
  /** Told by `next` and not promised yet. */
  readonly #next: number[] = [];
  /** Slots given back; those from `#fresh` up were never used. */
  readonly #free = new Set<number>();
  #fresh = 0;

  /** `limit` is the capacity times what may be promised over it. */
  constructor(limit: NodeAmounts, memory: MemoryReserve) {
    this.#limit = limit;
    this.#memory = memory;
  }

  get limit(): NodeAmounts {
    return this.#limit;
  }

  get promised(): NodeAmounts {
    return this.#promised;
  }

  /** Promises the resources and a slot. Throws `NodeFull`, naming what is short, and then has promised nothing. */
  admit(wanted: Resources): { readonly slot: number } {
    this.#require("sandboxes", 1, "sandboxes");
    this.#requireCompute(wanted);
    this.#add(wanted, 1, 1);
    return { slot: this.#next.shift() ?? this.#drawSlot() };
  }

  /** The slots of the next sandboxes, at most so many, in their order. What was told stays true. */
  next(count: number): readonly number[] {
    const most = Math.min(count, this.#limit.sandboxes - this.#promised.sandboxes);
    while (this.#next.length < most) this.#next.push(this.#drawSlot());
    return this.#next.slice(0, most);
  }

  /** Takes over a promise made before a restart, which stands even where limits shrank; `wanted` as in `release`. */
  adopt(wanted: Resources | undefined, slot: number): void {
    for (; this.#fresh <= slot; this.#fresh += 1) this.#free.add(this.#fresh);
    if (!this.#free.delete(slot)) throw new Error(`slot ${slot} was promised twice`);
    this.#add(wanted ?? { cpus: 0, memoryMiB: 0 }, 1, 1);
  }

  /** Promises compute to a sandbox that has a slot and gave its own back. Throws `NodeFull` as `admit` does. */
  admitCompute(wanted: Resources): void {
    this.#requireCompute(wanted);
    this.#add(wanted, 1, 0);
  }

  /** Gives back the compute of a sandbox that failed or is paused; its files, its slot and its place in the count stay. */
  releaseCompute(wanted: Resources): void {
    this.#add(wanted, -1, 0);
  }

  /** Gives back what is still promised; `wanted` is undefined when the compute was given back before. */
  release(wanted: Resources | undefined, slot: number): void {
    this.#free.add(slot);
    this.#add(wanted ?? { cpus: 0, memoryMiB: 0 }, -1, -1);
  }

  #requireCompute(wanted: Resources): void {
    this.#require("memoryMiB", wanted.memoryMiB, "MiB of memory");
    this.#require("cpus", wanted.cpus, "cpus");
    this.#requireReserve();
  }

  #require(what: keyof NodeAmounts, amount: number, unit: string): void {
    const limit = this.#limit[what];
    const left = limit - this.#promised[what];
    // Sums of fractions drift; a millionth of a core is nobody's.
    if (amount <= left + 1e-6) return;
    throw new SandboxError(
      "NodeFull",
      `the node has ${round(left)} ${unit} left of ${round(limit)}, ${amount} are asked`,
      {
        hint:
          amount > limit ? "ask for less: this node never has as much" : "retry with another node, or free something",
        details: { lacking: what, left: round(left), limit: round(limit) },
      },
    );
  }

  #requireReserve(): void {
    const { reserveMiB } = this.#memory;
    const left = this.#memory.availableMiB();
    if (left >= reserveMiB) return;
    throw new SandboxError("NodeFull", `the node has ${left} MiB of memory available and keeps ${reserveMiB} of them`, {
      hint: "retry with another node, or when sandboxes here use less",
      details: { lacking: "availableMemoryMiB", left, limit: reserveMiB },
    });
  }

  #add(wanted: Pick<Resources, "cpus" | "memoryMiB">, sign: 1 | -1, sandboxes: number): void {
    this.#promised = {
      cpus: clean(this.#promised.cpus + sign * wanted.cpus),
      memoryMiB: this.#promised.memoryMiB + sign * wanted.memoryMiB,
      sandboxes: this.#promised.sandboxes + sandboxes,
    };
  }

  #drawSlot(): number {
    for (const slot of this.#free) {
      this.#free.delete(slot);
      return slot;
    }
    this.#fresh += 1;
    return this.#fresh - 1;
  }
}

function round(amount: number): number {
  return Math.max(0, Math.round(amount * 1000) / 1000);
}

/** Keeps the sum of fractions from drifting away from zero over millions of sandboxes. */
function clean(amount: number): number {
  return Math.round(amount * 1e6) / 1e6;
}
