import type { Clock } from "#core/clock.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Admission } from "#edge/admission.ts";
import type { EdgeConfig, EdgeLog } from "#edge/config.ts";
import type { Journal } from "#edge/journal.ts";
import type { SandboxRows } from "#edge/sandbox-rows.ts";
import type { Timers } from "#edge/waiting/timers.ts";

/** What the drivers of one edge share. */
export interface DriverParts {
  readonly config: EdgeConfig;
  readonly clock: Clock;
  readonly log: EdgeLog;
  readonly journal: Journal;
  readonly rows: SandboxRows;
  readonly timers: Timers;
  readonly admission: Admission;
  /** Nothing of the sandbox is left. */
  gone(id: SandboxId): void;
}
