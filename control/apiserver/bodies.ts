import type { IncomingMessage, ServerResponse } from "node:http";
import { ByteBudget, type ByteHold } from "#core/bytes/byte-budget.ts";

/** Calls that wait for room for their bodies; each is a connection that nobody reads from. */
const MOST_WAITING = 1_000;
/** Smaller bodies are read at once: as many as there can be connections are no burden. */
const SMALL_BYTES = 64 * 1024;

/** Whose body it is, and how large it may be. */
export interface BodyOwner {
  readonly project: string;
  /** More is refused by whoever reads it. */
  readonly mostBytes: number;
  readonly signal: AbortSignal;
}

/**
 * Memory for bodies of calls, from before they are read until they are answered: a quarter of it for one project. Who finds no room is not
 * read from until there is.
 */
export class Bodies {
  readonly #budget: ByteBudget;

  constructor(totalBytes: number) {
    const projectBytes = Math.floor(totalBytes / 4);
    this.#budget = new ByteBudget({ what: "bodies", totalBytes, projectBytes, waiting: MOST_WAITING });
  }

  /** Bytes of bodies that are being read or acted on. */
  get heldBytes(): number {
    return this.#budget.heldBytes;
  }

  /**
   * Resolves when the body may be read; undefined: it takes no room worth counting. What is held is given back when the response has been sent, or its
   * connection is gone. Rejects with `Overloaded`, or the signal's reason.
   */
  async room(
    request: IncomingMessage,
    response: ServerResponse,
    { project, mostBytes, signal }: BodyOwner,
  ): Promise<ByteHold | undefined> {
    const bytes = announced(request, mostBytes);
    if (bytes <= SMALL_BYTES) return undefined;
    const hold = await this.#budget.take(project, bytes, signal);
    if (response.closed) hold[Symbol.dispose]();
    else response.once("close", () => hold[Symbol.dispose]());
    return hold;
  }
}

/** Bytes that will be held; none of a body that will be refused. One that does not tell its size may have any. */
function announced({ headers }: IncomingMessage, mostBytes: number): number {
  if (headers["transfer-encoding"] !== undefined) return mostBytes;
  const bytes = Number(headers["content-length"] ?? 0);
  return bytes <= mostBytes ? bytes : 0;
}
