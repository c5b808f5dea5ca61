import { availableParallelism } from "node:os";
import { integer, mebibytes } from "#core/setting-kinds.ts";
import type { SettingsOf } from "#core/settings.ts";
import type { FunctionSettings } from "./backend.ts";

const MIB = 1024 * 1024;
/** Enough that calls which wait for something leave no processor idle. */
const CALLS_PER_PROCESSOR = 4;
const IDLE_MS = 5 * 60_000;
const COMPILED_BYTES = 256 * MIB;
const FLOOR = 2;

/** What an operator may set about functions. */
export const FUNCTION_SETTINGS = {
  functionMemory: mebibytes("2GiB", "Memory of all calls of functions that run at once; more wait."),
  functionResults: mebibytes(
    "1GiB",
    "Results of functions, as large as those of running calls may become, until they are taken; a project has a quarter.",
  ),
  functionQueue: integer("1000", "Calls of functions that may wait; more are turned away.", { min: 1, max: 100_000 }),
};

/** What these settings mean on this machine. */
export function functionSettings(config: SettingsOf<typeof FUNCTION_SETTINGS>): FunctionSettings {
  const cpus = availableParallelism();
  const running = CALLS_PER_PROCESSOR * cpus;
  return {
    running,
    memoryMiB: config.functionMemory,
    queued: config.functionQueue,
    resultBytes: config.functionResults * MIB,
    cpus,
    cacheBytes: COMPILED_BYTES,
    pools: { floor: Math.min(FLOOR, running), ceiling: running, idleMs: IDLE_MS },
  };
}
