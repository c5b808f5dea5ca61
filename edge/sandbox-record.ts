import type { Clock } from "#core/clock.ts";
import { assertChange, type SandboxState } from "#core/lifecycle.ts";
import type { Lifetime, Resources, SandboxInfo } from "#core/sandbox.ts";
import type { Admission } from "#edge/admission.ts";
import type { SandboxRow, SandboxRows } from "#edge/sandbox-rows.ts";

/** What records share. */
interface RecordParts {
  readonly rows: SandboxRows;
  readonly admission: Admission;
  readonly clock: Clock;
}

/** What one sandbox is in the journal, and what it holds of the node's compute: every change of state is recorded here before it is acted on. */
export class SandboxRecord {
  readonly #parts: RecordParts;
  #row: SandboxRow;
  #computeHeld: boolean;

  constructor(parts: RecordParts, row: SandboxRow) {
    this.#parts = parts;
    this.#row = row;
    this.#computeHeld = row.state !== "failed" && row.state !== "paused";
  }

  get row(): SandboxRow {
    return this.#row;
  }

  get state(): SandboxState {
    return this.#row.state;
  }

  /** Undefined when its compute was given back. */
  get held(): Resources | undefined {
    return this.#computeHeld ? this.#row.spec.resources : undefined;
  }

  info(now: { readonly inUse: boolean; readonly runningCommands: number }): SandboxInfo {
    const { spec, state, generation, createdAtMs, readyAtMs, lifetime, lastActivityAtMs, reason, handle } = this.#row;
    return {
      spec: { ...spec, lifetime },
      state,
      generation,
      createdAtMs,
      readyAtMs,
      lastActivityAtMs: now.inUse ? this.#parts.clock.now() : lastActivityAtMs,
      reason,
      runningCommands: now.runningCommands,
      accelerator: handle?.accelerator,
    };
  }

  /** Writes the row for the first time. */
  insert(): void {
    this.#parts.rows.insert(this.#row);
  }

  /** What is not said stays; a reason is that of this change alone. */
  change(to: SandboxState, also: Partial<Pick<SandboxRow, "reason" | "handle" | "readyAtMs">> = {}): void {
    assertChange(this.state, to);
    this.#row = { ...this.#row, reason: undefined, ...also, state: to, generation: this.#row.generation + 1 };
    if (to !== "destroyed") this.#parts.rows.update(this.#row);
  }

  /** The sandbox is in use at this moment. The next change records it. */
  touch(): void {
    this.#row = { ...this.#row, lastActivityAtMs: this.#parts.clock.now() };
  }

  extend(lifetime: Lifetime): void {
    this.#row = { ...this.#row, lifetime };
    this.touch();
    this.#parts.rows.update(this.#row);
  }

  /** Promises it compute if it holds none. Throws `NodeFull`. */
  holdCompute(): void {
    if (this.#computeHeld) return;
    this.#parts.admission.admitCompute(this.#row.spec.resources);
    this.#computeHeld = true;
  }

  releaseCompute(): void {
    if (!this.#computeHeld) return;
    this.#computeHeld = false;
    this.#parts.admission.releaseCompute(this.#row.spec.resources);
  }

  /** Gives back everything that is promised to it. */
  release(): void {
    this.#parts.admission.release(this.held, this.#row.slot);
  }
}
