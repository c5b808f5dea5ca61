import type { GuestLink } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";

/** Who is told. */
type Told = Pick<GuestLink, "acknowledge" | "forget">;

/** What was not said yet about a task. */
interface Late {
  readonly acknowledged: Map<OutputStream, number>;
  forget: boolean;
}

/** Keeps receipts back until disposed. */
export interface HeldReceipts extends Disposable {
  /** False: the agent was reached anew meanwhile, and has been told where all outputs stand. */
  readonly whole: boolean;
}

/**
 * What the agent is told about what is safe with the edge, so that it can forget it. While they are held it forgets nothing: a sandbox that is copied then has
 * in the copy's agent all that the edge did not have when they were first held.
 */
export class Receipts {
  readonly #link: () => Told | undefined;
  readonly #late = new Map<number, Late>();
  readonly #holds = new Set<{ whole: boolean }>();

  /** `link` is undefined while the agent is being reached again: then the next link tells. */
  constructor(link: () => Told | undefined) {
    this.#link = link;
  }

  acknowledge(number: number, stream: OutputStream, offset: number): void {
    if (this.#holds.size > 0) this.#lateOf(number).acknowledged.set(stream, offset);
    else this.#link()?.acknowledge(number, stream, offset);
  }

  forget(number: number): void {
    if (this.#holds.size > 0) this.#lateOf(number).forget = true;
    else this.#link()?.forget(number);
  }

  /** Holds them; more than one may. */
  hold(): HeldReceipts {
    const hold = { whole: true };
    this.#holds.add(hold);
    return {
      get whole() {
        return hold.whole;
      },
      [Symbol.dispose]: () => {
        if (this.#holds.delete(hold) && this.#holds.size === 0) this.#catchUp();
      },
    };
  }

  /** A new link has told, or will tell, all that there is. */
  renew(): void {
    for (const hold of this.#holds) hold.whole = false;
    this.#late.clear();
  }

  #lateOf(number: number): Late {
    const late = this.#late.get(number) ?? { acknowledged: new Map(), forget: false };
    this.#late.set(number, late);
    return late;
  }

  #catchUp(): void {
    const link = this.#link();
    for (const [number, { acknowledged, forget }] of this.#late) {
      for (const [stream, offset] of acknowledged) link?.acknowledge(number, stream, offset);
      if (forget) link?.forget(number);
    }
    this.#late.clear();
  }
}
