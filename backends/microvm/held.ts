import { abortable } from "#core/concurrency/abort.ts";

/** A sandbox that can be held still, by one after the other of those who want that. */
export interface Holdable {
  /** Resolves when nobody else holds it; until disposed, nobody else may. */
  turn(): Promise<Disposable>;
  /** When it rejects, nothing is held. */
  hold(): Promise<void>;
  release(): Promise<void>;
}

/**
 * Runs `action` while a sandbox is held still. Unless it has let them go, they go on when it
 * rejects, and stay as they are when it resolves. A guest that does not answer is not waited for longer than the signal says: it goes on when it has.
 */
export async function whileHeld<T>(
  guest: Holdable,
  signal: AbortSignal,
  action: (held: { letGo(): Promise<void> }) => Promise<T>,
): Promise<T> {
  using _turn = await guest.turn();
  signal.throwIfAborted();
  await holdFor(guest, signal);
  let isHeld = true;
  const letGo = async () => {
    if (!isHeld) return;
    isHeld = false;
    await guest.release();
  };
  try {
    return await action({ letGo });
  } catch (error) {
    await letGo();
    throw error;
  }
}

async function holdFor(guest: Holdable, signal: AbortSignal): Promise<void> {
  const holding = guest.hold();
  try {
    await abortable(holding, signal);
  } catch (error) {
    void holding.then(() => guest.release()).catch(() => undefined);
    throw error;
  }
}
