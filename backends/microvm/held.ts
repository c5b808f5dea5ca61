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
 * rejects, and stay as they are when it resolves. A guest that does not answer is not waited for longer than the signal says, and neither is its turn: it goes on when it
 * has, and only then is it the next one's.
 */
export async function whileHeld<T>(
  guest: Holdable,
  signal: AbortSignal,
  action: (held: { letGo(): Promise<void> }) => Promise<T>,
): Promise<T> {
  const turn = await turnOf(guest, signal);
  const leave = () => turn[Symbol.dispose]();
  const holding = guest.hold();
  try {
    await abortable(holding, signal);
  } catch (error) {
    const released = holding.then(
      () => guest.release(),
      () => undefined,
    );
    void released.then(leave, leave);
    throw error;
  }
  let released: Promise<void> | undefined;
  const letGo = async () => {
    if (released !== undefined) return;
    released = guest.release();
    await abortable(released, signal);
  };
  try {
    return await action({ letGo });
  } catch (error) {
    await letGo();
    throw error;
  } finally {
    void (released ?? Promise.resolve()).then(leave, leave);
  }
}

/** Who leaves before its turn comes takes none from the next. */
async function turnOf(guest: Holdable, signal: AbortSignal): Promise<Disposable> {
  const coming = guest.turn();
  try {
    return await abortable(coming, signal);
  } catch (error) {
    void coming.then(
      (turn) => turn[Symbol.dispose](),
      () => undefined,
    );
    throw error;
  }
}
