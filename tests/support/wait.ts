import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 20;

/** Polls until `isTrue`; throws with `what` after `limitMs`. For states that nothing announces. */
export async function waitUntil(
  what: string,
  limitMs: number,
  isTrue: () => boolean | Promise<boolean>,
): Promise<void> {
  const end = Date.now() + limitMs;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`);
    await sleep(POLL_MS);
  }
}
