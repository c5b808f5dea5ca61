import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { SandboxError } from "#core/errors.ts";

/** Work that was put off waits so long for more to be done with it. */
const PUT_OFF_MS = 50;

/**
 * The edge's memory of what it owns: intent before the act, the result after it.
 *
 * One sqlite database in the data directory. It is held exclusively while open, by locks that die with the process, so a second
 * node on the directory is refused and a killed one leaves nothing to clear. A commit survives the death of the process; after
 * a power cut the last ones may be missing, but then the sandboxes are gone too.
 */
export class Journal implements Disposable {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  readonly #putOff = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  /** Throws `FailedPrecondition` when another process holds the directory, or a newer version wrote it. */
  static open(dataDir: string): Journal {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const db = new DatabaseSync(join(dataDir, "journal.db"));
    try {
      lock(db, dataDir);
      migrate(db);
    } catch (error) {
      db.close();
      throw error;
    }
    writeFileSync(join(dataDir, "node.pid"), `${process.pid}\n`, { mode: 0o600 });
    return new Journal(db);
  }

  /** A prepared statement; preparing happens once. */
  prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  /** All of `work` or nothing of it. */
  transact<T>(work: () => T): T {
    this.prepare("BEGIN").run();
    try {
      const result = work();
      this.prepare("COMMIT").run();
      return result;
    } catch (error) {
      // A full disk has taken it back already.
      if (this.#db.isTransaction) this.prepare("ROLLBACK").run();
      throw error;
    }
  }

  /** Writes soon, in one transaction with what else was put off: for what the next edge can do without. Disposing takes it back. */
  putOff(work: () => void): Disposable {
    this.#putOff.add(work);
    this.#timer ??= setTimeout(() => this.#catchUp(), PUT_OFF_MS).unref();
    return { [Symbol.dispose]: () => this.#putOff.delete(work) };
  }

  [Symbol.dispose](): void {
    if (!this.#db.isOpen) return;
    this.#catchUp();
    this.#db.close();
  }

  #catchUp(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#putOff.size === 0) return;
    this.transact(() => {
      for (const work of this.#putOff) work();
    });
    this.#putOff.clear();
  }
}

/** Entry n brings a journal of version n to n + 1. Only ever append. */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE sandboxes (
     id TEXT PRIMARY KEY,
     spec TEXT NOT NULL,
     slot INTEGER NOT NULL,
     state TEXT NOT NULL,
     generation INTEGER NOT NULL,
     reason TEXT,
     handle TEXT,
     created INTEGER NOT NULL,
     ready INTEGER,
     activity INTEGER NOT NULL,
     idle INTEGER,
     lifetime INTEGER
   ) WITHOUT ROWID;
   CREATE TABLE commands (
     sandbox TEXT NOT NULL,
     number INTEGER NOT NULL,
     id TEXT NOT NULL,
     key TEXT,
     spec TEXT NOT NULL,
     cap INTEGER NOT NULL,
     pid INTEGER,
     started INTEGER NOT NULL,
     status TEXT,
     streams TEXT,
     stdout BLOB,
     stderr BLOB,
     PRIMARY KEY (sandbox, number)
   ) WITHOUT ROWID;
   CREATE UNIQUE INDEX commands_by_id ON commands (sandbox, id);
   CREATE UNIQUE INDEX commands_by_key ON commands (sandbox, key) WHERE key IS NOT NULL;`,
  // What was kept before this version counts from nothing: at worst a sandbox keeps its cap twice.
  `ALTER TABLE commands ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
   CREATE INDEX commands_by_kept ON commands (sandbox, number) WHERE kept > 0`,
  // The name of the session whose shell the command is.
  `ALTER TABLE commands ADD COLUMN session TEXT;
   CREATE INDEX commands_by_session ON commands (sandbox, session) WHERE session IS NOT NULL`,
];

function lock(db: DatabaseSync, dataDir: string): void {
  try {
    db.exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    db.exec("BEGIN IMMEDIATE; COMMIT");
  } catch (error) {
    if (!(error instanceof Error && /locked|busy/.test(error.message))) throw error;
    throw new SandboxError("FailedPrecondition", `data directory ${dataDir} is in use by ${holder(dataDir)}`, {
      cause: error,
      hint: "stop that node, or give this one its own data directory",
    });
  }
}

function holder(dataDir: string): string {
  try {
    return `the node with pid ${readFileSync(join(dataDir, "node.pid"), "utf8").trim()}`;
  } catch {
    return "another node";
  }
}

function migrate(db: DatabaseSync): void {
  const version = Number(db.prepare("PRAGMA user_version").get()?.user_version);
  if (version > MIGRATIONS.length) {
    throw new SandboxError(
      "FailedPrecondition",
      `the journal has version ${version}, this node knows ${MIGRATIONS.length}`,
      {
        hint: "start the newer release that wrote it",
      },
    );
  }
  for (const [at, sql] of MIGRATIONS.entries()) {
    if (at >= version) db.exec(`BEGIN; ${sql}; PRAGMA user_version = ${at + 1}; COMMIT`);
  }
}
