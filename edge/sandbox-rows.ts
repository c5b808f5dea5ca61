import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxState } from "#core/lifecycle.ts";
import type { Lifetime, SandboxSpec } from "#core/sandbox.ts";
import type { Journal } from "#edge/journal.ts";

/** A sandbox as the journal has it. */
export interface SandboxRow {
  readonly spec: SandboxSpec;
  readonly slot: number;
  readonly state: SandboxState;
  readonly generation: number;
  readonly reason: string | undefined;
  readonly handle: Handle | undefined;
  readonly createdAtMs: number;
  readonly readyAtMs: number | undefined;
  readonly lastActivityAtMs: number;
  /** In force; `spec.lifetime` is what was asked at creation. */
  readonly lifetime: Lifetime;
}

/** The row of a sandbox whose creation begins now. */
export function newSandboxRow(spec: SandboxSpec, slot: number, nowMs: number): SandboxRow {
  return {
    spec,
    slot,
    state: "creating",
    generation: 1,
    reason: undefined,
    handle: undefined,
    createdAtMs: nowMs,
    readyAtMs: undefined,
    lastActivityAtMs: nowMs,
    lifetime: spec.lifetime,
  };
}

/** The sandboxes of a journal. */
export class SandboxRows {
  readonly #journal: Journal;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  all(): SandboxRow[] {
    return this.#journal.prepare("SELECT * FROM sandboxes").all().map(fromRow);
  }

  insert(row: SandboxRow): void {
    this.#journal
      .prepare(
        `INSERT INTO sandboxes (id, spec, slot, state, generation, created, activity, idle, lifetime)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      )
      .run(
        row.spec.id,
        JSON.stringify(row.spec),
        row.slot,
        row.state,
        row.generation,
        row.createdAtMs,
        row.lastActivityAtMs,
        row.lifetime.idleTimeoutMs ?? null,
        row.lifetime.maxLifetimeMs ?? null,
      );
  }

  /** Records everything that can change. */
  update(row: SandboxRow): void {
    this.#journal
      .prepare(
        `UPDATE sandboxes SET state = ?, generation = ?, reason = ?, handle = ?, ready = ?, activity = ?, idle = ?,
         lifetime = ? WHERE id = ?`,
      )
      .run(
        row.state,
        row.generation,
        row.reason ?? null,
        row.handle === undefined ? null : JSON.stringify(row.handle),
        row.readyAtMs ?? null,
        row.lastActivityAtMs,
        row.lifetime.idleTimeoutMs ?? null,
        row.lifetime.maxLifetimeMs ?? null,
        row.spec.id,
      );
  }

  active(id: SandboxId, atMs: number): void {
    this.#journal.prepare("UPDATE sandboxes SET activity = ? WHERE id = ?").run(atMs, id);
  }

  delete(id: SandboxId): void {
    this.#journal.transact(() => {
      this.#journal.prepare("DELETE FROM commands WHERE sandbox = ?").run(id);
      this.#journal.prepare("DELETE FROM sandboxes WHERE id = ?").run(id);
    });
  }
}

/** The JSON columns hold what `insert` and `update` wrote from these very types; the journal is private to the edge. */
function fromRow(row: Record<string, unknown>): SandboxRow {
  return {
    spec: JSON.parse(String(row.spec)) as SandboxSpec,
    slot: Number(row.slot),
    state: String(row.state) as SandboxState,
    generation: Number(row.generation),
    reason: row.reason === null ? undefined : String(row.reason),
    handle: row.handle === null ? undefined : (JSON.parse(String(row.handle)) as Handle),
    createdAtMs: Number(row.created),
    readyAtMs: optional(row.ready),
    lastActivityAtMs: Number(row.activity),
    lifetime: { idleTimeoutMs: optional(row.idle), maxLifetimeMs: optional(row.lifetime) },
  };
}

function optional(value: unknown): number | undefined {
  return value === null ? undefined : Number(value);
}
