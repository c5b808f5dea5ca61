import type { EdgeId } from "#core/ids.ts";
import type { NodeAmounts } from "#core/node.ts";

/** What an edge needs to know. `bin/` fills it from its settings. */
export interface EdgeConfig {
  readonly edge: EdgeId;
  readonly version: string;
  /** Journal and outputs; owned by one edge at a time. */
  readonly dataDir: string;
  /** What the node has to promise: its hardware less what the platform keeps for itself. */
  readonly capacity: NodeAmounts;
  /** How many times over the capacity is promised; 1 promises nothing twice. */
  readonly cpuOvercommit: number;
  readonly memoryOvercommit: number;
  /** No sandbox is taken while the machine has less memory available. */
  readonly memoryReserveMiB: number;
  /** A create that takes longer is undone. */
  readonly createTimeoutMs: number;
  /** Bytes of each output stream that stay readable when the command does not say. */
  readonly outputCapBytes: number;
  /** Bytes of output that a sandbox keeps of all its commands together. */
  readonly outputBudgetBytes: number;
  /** Nobody has used a sandbox for so long: it gives up memory that it can do without. */
  readonly restAfterMs: number;
  /** Waits between attempts to reach an agent again; after the last the sandbox is lost. */
  readonly reconnectDelaysMs: readonly number[];
}

/** Bounds and habits that suit most nodes. */
export const EDGE_DEFAULTS = {
  cpuOvercommit: 1_000,
  memoryOvercommit: 100,
  memoryReserveMiB: 512,
  createTimeoutMs: 60_000,
  outputCapBytes: 64 * 1024 * 1024,
  outputBudgetBytes: 1024 * 1024 * 1024,
  restAfterMs: 60_000,
  reconnectDelaysMs: [0, 50, 200, 500, 1_000],
} as const satisfies Partial<EdgeConfig>;

/** Where the edge writes what it cannot return to a caller. */
export interface EdgeLog {
  info(facts: Readonly<Record<string, unknown>>, message: string): void;
  warn(facts: Readonly<Record<string, unknown>>, message: string): void;
}
