import type { SandboxId } from "#core/ids.ts";
import { type IdempotencyKeys, requestHash, stateKey } from "./idempotency.ts";

/** A call that may be repeated under a key. */
export interface KeyedCall {
  readonly project: string;
  /** Undefined: the call is carried out whenever it comes. */
  readonly key: string | undefined;
  /** The sandbox that it is about. */
  readonly id: SandboxId;
  /** Its name and what it asks for: another request under the same key is refused. */
  readonly request: unknown;
}

/** Answers repeats of calls with what the first one answered, as long as keys are remembered. A failure is not remembered. */
export class Replies {
  readonly #keys: IdempotencyKeys;
  readonly #underWay = new Map<string, { readonly hash: string; readonly reply: Promise<unknown> }>();

  constructor(keys: IdempotencyKeys) {
    this.#keys = keys;
  }

  /** The answer of `act`, or that of an earlier call under the key. Rejects as `IdempotencyKeys.find` and `act` do. */
  async once<T>(call: KeyedCall, act: () => Promise<T>): Promise<T> {
    if (call.key === undefined) return await act();
    const key = stateKey(call.project, call.key);
    const hash = requestHash({ id: call.id, request: call.request });
    const known = await this.#keys.find(key, hash);
    // The hash is that of this very call: so the answer has its form.
    if (known?.record.reply !== undefined) return JSON.parse(known.record.reply) as T;
    const running = this.#underWay.get(key);
    if (running?.hash === hash) return (await running.reply) as T;
    const reply = act();
    this.#underWay.set(key, { hash, reply });
    try {
      const made = await reply;
      await this.#keys.keep(key, hash, call.id, made);
      return made;
    } finally {
      this.#underWay.delete(key);
    }
  }
}
