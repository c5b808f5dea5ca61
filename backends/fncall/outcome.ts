import { constants } from "node:os";
import { getSystemErrorName } from "node:util";
import type { CellResult } from "#core/cells.ts";
import type { FunctionRun, FunctionStatus } from "#core/functions.ts";

const SIGNALS: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.signals).map(([name, number]) => [number, name]),
);

/** What a run's end means for whoever wrote it. */
export function statusOf({ verdict, code }: CellResult): Exclude<FunctionStatus, "compile-error"> {
  switch (verdict) {
    case "ended":
      return code === 0 ? "ok" : "runtime-error";
    case "unrunnable":
      return "runtime-error";
    case "cpu":
    case "wall":
      return "time-limit";
    case "memory":
      return "memory-limit";
    case "output":
      return "output-limit";
    case "fault":
      return "system-error";
  }
}

/** The run as its caller sees it. */
export function runOf(result: CellResult): FunctionRun {
  const { code, signal, stdout, stderr, wallMs, cpuMs, peakBytes, verdict } = result;
  return {
    exitCode: code,
    signal: signal === undefined ? undefined : (SIGNALS.get(signal) ?? `signal ${signal}`),
    stdout,
    stderr,
    outputCut: verdict === "output",
    wallMs,
    cpuMs,
    peakMemoryBytes: peakBytes,
  };
}

/** Why, where the status alone would leave one guessing. */
export function messageOf({ verdict, errno }: CellResult): string | undefined {
  if (verdict === "unrunnable")
    return `the program cannot be run (${errno === undefined ? "unknown" : getSystemErrorName(-errno)})`;
  if (verdict === "wall") return "it waited longer than its time limit allows by the clock";
  if (verdict === "fault") return "the node could not carry the call out";
  return undefined;
}
