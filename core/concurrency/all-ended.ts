/** Waits for all of them; rejects with the reason of the first in the order given that did, and not before the others have ended: nothing goes on then. */
export async function allEnded<T>(works: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(works);
  return await Promise.all(works);
}
