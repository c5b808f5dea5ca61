import type { CommandId, SandboxId } from "#core/ids.ts";
import { pack, unpack } from "#core/pack.ts";
import type { CommandInfo, CommandSpec, ExitCause, ExitStatus, OutputStream, StreamInfo } from "#core/sandbox.ts";
import type { Journal } from "#edge/journal.ts";

/** A command as the journal has it. `status` and `streams` are undefined while it runs. */
export interface CommandRow {
  readonly number: number;
  readonly id: CommandId;
  readonly spec: CommandSpec;
  readonly capBytes: number;
  readonly pid: number | undefined;
  readonly startedAtMs: number;
  readonly status: ExitStatus | undefined;
  readonly streams: Readonly<Record<OutputStream, StreamInfo>> | undefined;
  /** Output that never grew large enough for a file. */
  readonly small: Readonly<Record<OutputStream, Uint8Array | undefined>>;
  /** What its outputs took of the sandbox's budget when their record was written. */
  readonly keptBytes: number;
}

/** That a sandbox was active is written this often: an edge that finds it ready again counts from then on anyway. */
const ACTIVITY_EVERY_MS = 1_000;

/** The end of a command: all of it or nothing is recorded. */
export interface CommandEnd {
  readonly status: ExitStatus;
  readonly streams: Readonly<Record<OutputStream, StreamInfo>>;
  readonly small: Readonly<Record<OutputStream, Uint8Array | undefined>>;
  readonly keptBytes: number;
}

/** The commands of one sandbox in the journal. */
export class CommandRows {
  readonly #journal: Journal;
  readonly #sandbox: SandboxId;
  /** Of commands that have begun, until they are written. */
  readonly #pids = new Map<number, Disposable>();
  #activityAtMs = Number.NEGATIVE_INFINITY;

  constructor(journal: Journal, sandbox: SandboxId) {
    this.#journal = journal;
    this.#sandbox = sandbox;
  }

  /** Says the size of what was asked for, in bytes: it stays as long as the row. */
  insert(row: CommandRow): number {
    const spec = JSON.stringify(pack(row.spec));
    this.#journal
      .prepare(
        "INSERT INTO commands (sandbox, number, id, key, spec, cap, started, session) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      )
      .run(
        this.#sandbox,
        row.number,
        row.id,
        row.spec.idempotencyKey ?? null,
        spec,
        row.capBytes,
        row.startedAtMs,
        sessionName(row) ?? null,
      );
    return Buffer.byteLength(spec);
  }

  /** Takes over the row of another sandbox, all of it. */
  copy(row: CommandRow): void {
    this.insert(row);
    const { number, pid = null, status, streams, small, keptBytes } = row;
    this.#journal
      .prepare(
        "UPDATE commands SET pid = ?, status = ?, streams = ?, kept = ?, stdout = ?, stderr = ? WHERE sandbox = ? AND number = ?",
      )
      .run(
        pid,
        status === undefined ? null : JSON.stringify(status),
        streams === undefined ? null : JSON.stringify(streams),
        keptBytes,
        small.stdout ?? null,
        small.stderr ?? null,
        this.#sandbox,
        number,
      );
  }

  /** Recorded soon, or with the end: the next edge asks the agent. */
  started(number: number, pid: number): void {
    const record = () => {
      this.#pids.delete(number);
      this.#journal
        .prepare("UPDATE commands SET pid = ? WHERE sandbox = ? AND number = ?")
        .run(pid, this.#sandbox, number);
    };
    this.#pids.set(number, this.#journal.putOff(record));
  }

  /** The end, and that it was activity. */
  ended(number: number, end: CommandEnd & { readonly pid: number }, atMs: number): void {
    this.#pids.get(number)?.[Symbol.dispose]();
    this.#pids.delete(number);
    const record = () => {
      this.#journal
        .prepare(
          "UPDATE commands SET pid = ?, status = ?, streams = ?, kept = ?, stdout = ?, stderr = ? WHERE sandbox = ? AND number = ?",
        )
        .run(
          end.pid,
          JSON.stringify(end.status),
          JSON.stringify(end.streams),
          end.keptBytes,
          end.small.stdout ?? null,
          end.small.stderr ?? null,
          this.#sandbox,
          number,
        );
    };
    if (Math.abs(atMs - this.#activityAtMs) < ACTIVITY_EVERY_MS) {
      record();
      return;
    }
    this.#journal.transact(() => {
      record();
      this.#journal.prepare("UPDATE sandboxes SET activity = ? WHERE id = ?").run(atMs, this.#sandbox);
    });
    this.#activityAtMs = atMs;
  }

  /** What changed after the end: a background child went on writing. */
  streams(number: number, streams: Readonly<Record<OutputStream, StreamInfo>>, keptBytes: number): void {
    this.#journal
      .prepare("UPDATE commands SET streams = ?, kept = ? WHERE sandbox = ? AND number = ?")
      .run(JSON.stringify(streams), keptBytes, this.#sandbox, number);
  }

  /** Nothing is left of the outputs of a command that has ended; what was seen stays counted. */
  dropOutput({ number, streams }: CommandRow): void {
    if (streams === undefined) throw new Error("a command that has not ended keeps its outputs");
    const without = (stream: StreamInfo) => ({ ...stream, kept: 0, truncated: stream.seen > 0 });
    const left = { stdout: without(streams.stdout), stderr: without(streams.stderr) };
    this.#journal
      .prepare(
        "UPDATE commands SET streams = ?, kept = 0, stdout = NULL, stderr = NULL WHERE sandbox = ? AND number = ?",
      )
      .run(JSON.stringify(left), this.#sandbox, number);
  }

  /** Says the size as `insert` did; 0 when there is no such row. */
  delete(number: number): number {
    const row = this.#journal
      .prepare("DELETE FROM commands WHERE sandbox = ? AND number = ? RETURNING octet_length(spec) AS bytes")
      .get(this.#sandbox, number);
    return Number(row?.bytes ?? 0);
  }

  byId(id: CommandId): CommandRow | undefined {
    return first(this.#journal.prepare("SELECT * FROM commands WHERE sandbox = ? AND id = ?").get(this.#sandbox, id));
  }

  byKey(key: string): CommandRow | undefined {
    return first(this.#journal.prepare("SELECT * FROM commands WHERE sandbox = ? AND key = ?").get(this.#sandbox, key));
  }

  /** The shells of sessions: of each name the latest. */
  sessions(): CommandId[] {
    return this.#journal
      .prepare(
        "SELECT id, max(number) FROM commands WHERE sandbox = ? AND session IS NOT NULL GROUP BY session ORDER BY number",
      )
      .all(this.#sandbox)
      .map(({ id }) => String(id) as CommandId);
  }

  /** The shell of the latest session of that name. By its index: the order alone would have every line look at all commands since its start. */
  session(name: string): CommandId | undefined {
    const row = this.#journal
      .prepare(
        "SELECT id FROM commands INDEXED BY commands_by_session WHERE sandbox = ? AND session = ? ORDER BY number DESC LIMIT 1",
      )
      .get(this.#sandbox, name);
    return row === undefined ? undefined : (String(row.id) as CommandId);
  }

  /** Those behind a number, without the shells of sessions, one after the other in the order of their starts, or before it and the other way round. */
  *from(number: number, newestFirst: boolean): Generator<CommandRow, void, undefined> {
    const order = newestFirst ? "number < ? ORDER BY number DESC" : "number > ? ORDER BY number";
    const found = this.#journal.prepare(`SELECT * FROM commands WHERE sandbox = ? AND session IS NULL AND ${order}`);
    for (const row of found.iterate(this.#sandbox, number)) yield fromRow(row);
  }

  /** Those that ended with this cause. */
  countCause(cause: ExitCause): number {
    const row = this.#journal
      .prepare("SELECT count(*) AS commands FROM commands WHERE sandbox = ? AND status ->> '$.cause' = ?")
      .get(this.#sandbox, cause);
    return Number(row?.commands);
  }

  /** The first `count` of those that have ended, without what was asked for: that may be megabytes of each. */
  oldestEnded(count: number): Pick<CommandRow, "number" | "id" | "keptBytes">[] {
    return this.#journal
      .prepare("SELECT number, id, kept FROM commands WHERE sandbox = ? AND status IS NOT NULL ORDER BY number LIMIT ?")
      .all(this.#sandbox, count)
      .map(({ number, id, kept }) => ({
        number: Number(number),
        id: String(id) as CommandId,
        keptBytes: Number(kept),
      }));
  }

  /** Those that have ended and keep some output, in the order of their starts. */
  *keeping(): Generator<CommandRow, void, undefined> {
    const found = this.#journal.prepare(
      "SELECT * FROM commands INDEXED BY commands_by_kept WHERE sandbox = ? AND kept > 0 AND status IS NOT NULL ORDER BY number",
    );
    for (const row of found.iterate(this.#sandbox)) yield fromRow(row);
  }

  /** Those whose task may still live in the agent: running, or with a stream that somebody holds. */
  open(): CommandRow[] {
    return this.#journal
      .prepare("SELECT * FROM commands WHERE sandbox = ? AND (status IS NULL OR streams LIKE '%\"ended\":false%')")
      .all(this.#sandbox)
      .map(fromRow);
  }

  count(): {
    readonly commands: number;
    readonly highest: number;
    readonly keptBytes: number;
    readonly specBytes: number;
  } {
    const row = this.#journal
      .prepare(
        "SELECT count(*) AS commands, coalesce(max(number), 0) AS highest, coalesce(sum(kept), 0) AS kept, coalesce(sum(octet_length(spec)), 0) AS spec FROM commands WHERE sandbox = ?",
      )
      .get(this.#sandbox);
    const { commands, highest, kept, spec } = row ?? {};
    return { commands: Number(commands), highest: Number(highest), keptBytes: Number(kept), specBytes: Number(spec) };
  }
}

/** The name of the session whose shell a command is. */
function sessionName({ id, spec }: { readonly id: CommandId; readonly spec: CommandSpec }): string | undefined {
  if (spec.session?.role !== "shell") return undefined;
  return spec.session.name === "" ? id : spec.session.name;
}

/** What is known of a command that nothing more happens to. */
export function recordedCommand(row: CommandRow): CommandInfo {
  const none: StreamInfo = { seen: 0, kept: 0, truncated: false, ended: false };
  return {
    id: row.id,
    argv: row.spec.argv,
    pid: row.pid ?? 0,
    terminal: row.spec.terminal,
    waitFor: row.spec.waitFor,
    session: row.spec.session?.name,
    startedAtMs: row.startedAtMs,
    status: row.status,
    stdout: row.streams?.stdout ?? none,
    stderr: row.streams?.stderr ?? none,
  };
}

function first(row: Record<string, unknown> | undefined): CommandRow | undefined {
  return row === undefined ? undefined : fromRow(row);
}

/** The JSON columns hold what this file wrote from these very types; the journal is private to the edge. */
function fromRow(row: Record<string, unknown>): CommandRow {
  return {
    number: Number(row.number),
    id: String(row.id) as CommandId,
    spec: unpack(JSON.parse(String(row.spec))) as CommandSpec,
    capBytes: Number(row.cap),
    pid: row.pid === null ? undefined : Number(row.pid),
    startedAtMs: Number(row.started),
    status: row.status === null ? undefined : (JSON.parse(String(row.status)) as ExitStatus),
    streams: row.streams === null ? undefined : (JSON.parse(String(row.streams)) as Record<OutputStream, StreamInfo>),
    small: { stdout: blob(row.stdout), stderr: blob(row.stderr) },
    keptBytes: Number(row.kept),
  };
}

function blob(value: unknown): Uint8Array | undefined {
  return value instanceof Uint8Array ? value : undefined;
}
