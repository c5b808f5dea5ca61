import type { IncomingMessage, ServerResponse } from "node:http";
import { ByteBudget, type ByteHold } from "#core/bytes/byte-budget.ts";
import { SandboxError } from "#core/errors.ts";

/** Calls that wait for room for their bodies; each is a connection that nobody reads from. */
const MOST_WAITING = 1_000;
/** Smaller bodies are read at once: as many as there can be connections are no burden. */
const SMALL_BYTES = 64 * 1024;
/** Whoever sends a body more slowly than this, after a while that every one has, keeps room from others. */
const SLOWEST_BYTES_PER_MS = 128;
const GRACE_MS = 60_000;

/** Whose body it is, and how large it may be. */
export interface BodyOwner {
  readonly project: string;
  /** More is refused by whoever reads it. */
  readonly mostBytes: number;
  /** Its call's. */
  readonly signal: AbortSignal;
  /** Answers for what has not come in time. */
  readonly refuse: (reason: unknown) => void;
}

/**
 * Memory for bodies of calls, from before they are read until they are answered: a quarter of it for one project. Who finds no room is not
 * read from until there is.
 */
export class Bodies {
  readonly #budget: ByteBudget;
  readonly #graceMs: number;

  constructor(totalBytes: number, { graceMs = GRACE_MS }: { readonly graceMs?: number } = {}) {
    this.#graceMs = graceMs;
    const projectBytes = Math.floor(totalBytes / 4);
    this.#budget = new ByteBudget({ what: "bodies", totalBytes, projectBytes, waiting: MOST_WAITING });
  }

  /** Bytes of bodies that are being read or acted on. */
  get heldBytes(): number {
    return this.#budget.heldBytes;
  }

  /**
   * Resolves when the body may be read; undefined: it takes no room worth counting. What is held is given back when the response has been sent, or its
   * connection is gone. A body that has not come by the end of its call, or comes too slowly, is not read any further. Rejects with `Overloaded`, or the signal's reason.
   */
  async room(
    request: IncomingMessage,
    response: ServerResponse,
    { project, mostBytes, signal, refuse }: BodyOwner,
  ): Promise<ByteHold | undefined> {
    const bytes = announced(request, mostBytes);
    if (bytes <= SMALL_BYTES) return undefined;
    const hold = await this.#budget.take(project, bytes, signal);
    if (response.closed) hold[Symbol.dispose]();
    else response.once("close", () => hold[Symbol.dispose]());
    expect(request, response, { signal, limitMs: this.#graceMs + bytes / SLOWEST_BYTES_PER_MS, refuse });
    return hold;
  }
}

/** What is held for a body goes when its call ends: from then on nobody may collect any more of it. */
function expect(
  request: IncomingMessage,
  response: ServerResponse,
  { signal, limitMs, refuse }: Pick<BodyOwner, "signal" | "refuse"> & { readonly limitMs: number },
): void {
  const giveUp = (reason: unknown) => {
    if (request.complete || response.closed) return;
    for (const event of ["data", "end", "error"]) request.removeAllListeners(event);
    refuse(reason);
  };
  const end = () => giveUp(signal.reason);
  const late = setTimeout(() => giveUp(tooSlow(limitMs)), limitMs);
  late.unref();
  signal.addEventListener("abort", end, { once: true });
  response.once("close", () => {
    clearTimeout(late);
    signal.removeEventListener("abort", end);
  });
}

function tooSlow(limitMs: number): SandboxError {
  return new SandboxError("DeadlineExceeded", `the body did not come within ${Math.ceil(limitMs / 1000)} s`, {
    hint: "send less at once, or from nearer by",
  });
}

/** Bytes that will be held; none of a body that will be refused. One that does not tell its size may have any. */
function announced({ headers }: IncomingMessage, mostBytes: number): number {
  if (headers["transfer-encoding"] !== undefined) return mostBytes;
  const bytes = Number(headers["content-length"] ?? 0);
  return bytes <= mostBytes ? bytes : 0;
}
