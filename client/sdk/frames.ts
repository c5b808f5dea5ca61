import { pause } from "./patience.ts";
import type { Screenshot } from "./screenshot.ts";

/** How to film a screen. */
export interface FilmOptions {
  /** 5 unless given, 1 to 30: as many as the server takes pictures. */
  readonly framesPerSecond?: number;
  /** Ends it after so long; without it, whoever reads does. */
  readonly durationMs?: number;
  readonly signal?: AbortSignal;
}

const [USUAL_RATE, MOST_RATE] = [5, 30];

/**
 * A picture for each moment of a film, in order and in its own time: one that was late stands for the moments that it missed. Throws a `RangeError` for a
 * rate that is none.
 */
export async function* filmFrames(
  take: (signal: AbortSignal | undefined) => Promise<Screenshot>,
  { framesPerSecond = USUAL_RATE, durationMs = Number.POSITIVE_INFINITY, signal }: FilmOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (!(framesPerSecond >= 1 && framesPerSecond <= MOST_RATE)) {
    throw new RangeError(`framesPerSecond ${framesPerSecond} is not from 1 to ${MOST_RATE}`);
  }
  const frameMs = 1_000 / framesPerSecond;
  const beganAtMs = performance.now();
  const frames = Math.max(1, Math.round(durationMs / frameMs));
  for (let frame = 0; frame < frames; ) {
    const { png } = await take(signal);
    const passed = Math.min(frames, Math.max(frame + 1, Math.floor((performance.now() - beganAtMs) / frameMs)));
    for (; frame < passed; frame++) yield png;
    const aheadMs = beganAtMs + frame * frameMs - performance.now();
    if (aheadMs > 0 && frame < frames) await pause(aheadMs, signal);
  }
}
