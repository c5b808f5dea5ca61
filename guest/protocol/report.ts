import type { TaskReport } from "#core/guest.ts";
import { decodeEnd } from "./failures.ts";
import { type Frame, getOffset } from "./frames.ts";

/** The flag of a TASK whose leader has not ended. */
const LIVE = 255;

/** What a TASK frame says. Throws `Internal` for what no agent sends. */
export function decodeReport(frame: Frame): TaskReport {
  const { payload } = frame;
  return {
    number: frame.task,
    pid: payload.readUInt32LE(0),
    end: frame.flag === LIVE ? undefined : decodeEnd(frame.flag, payload, 36),
    streams: {
      stdout: { from: getOffset(payload, 4), to: getOffset(payload, 12) },
      stderr: { from: getOffset(payload, 20), to: getOffset(payload, 28) },
    },
  };
}
