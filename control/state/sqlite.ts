import { closeSync, openSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { SandboxError } from "#core/errors.ts";
import type { Entry, Expected, Page, StateStore } from "./store.ts";

/** Versions of the file's layout: entry n makes version n + 1 out of n. Old files are brought up at opening. */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
   CREATE TABLE counter (revision INTEGER NOT NULL);
   INSERT INTO counter VALUES (0);`,
];

/** State in one file, for a control plane on one machine. What was answered survives a crash of the process. */
export class SqliteState implements StateStore {
  readonly #database: DatabaseSync;
  readonly #get: StatementSync;
  readonly #page: StatementSync;
  readonly #tick: StatementSync;
  readonly #write: StatementSync;
  readonly #remove: StatementSync;

  /** Opens or makes the file at `path`. Throws `FailedPrecondition` for a file of a newer version. */
  constructor(path: string) {
    // Who has tokens, and for which projects, is for the owner only. The files beside it get the same mode.
    closeSync(openSync(path, "a", 0o600));
    this.#database = new DatabaseSync(path);
    try {
      // A commit survives a crash of the process; a power cut may take the last ones, which callers then repeat.
      this.#database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000;");
      migrate(this.#database, path);
      this.#get = this.#database.prepare("SELECT key, value, revision FROM entries WHERE key = ?");
      this.#page = this.#database.prepare(
        "SELECT key, value, revision FROM entries WHERE key >= ? AND key > ? ORDER BY key LIMIT ?",
      );
      this.#tick = this.#database.prepare("UPDATE counter SET revision = revision + 1 RETURNING revision");
      this.#write = this.#database.prepare("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)");
      this.#remove = this.#database.prepare("DELETE FROM entries WHERE key = ?");
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  async get(key: string): Promise<Entry | undefined> {
    return this.#read(key);
  }

  async list(prefix: string, page: Page = {}): Promise<readonly Entry[]> {
    const entries: Entry[] = [];
    if (page.limit === 0) return entries;
    for (const row of this.#page.iterate(prefix, page.after ?? "", -1)) {
      const entry = entryOf(row);
      // Keys with the prefix are neighbours in the order of bytes: the first other one ends the list.
      if (!entry.key.startsWith(prefix)) break;
      entries.push(entry);
      if (entries.length === page.limit) break;
    }
    return entries;
  }

  async put(key: string, value: string, expected: Expected): Promise<number | undefined> {
    return this.#atomically(() => {
      const present = expected === "any" ? undefined : this.#read(key)?.revision;
      if (expected !== "any" && present !== (expected === "absent" ? undefined : expected)) return undefined;
      const revision = Number(this.#tick.get()?.revision);
      this.#write.run(key, value, revision);
      return revision;
    });
  }

  async delete(key: string, expected: number | "any"): Promise<boolean> {
    return this.#atomically(() => {
      const present = this.#read(key)?.revision;
      if (present !== undefined && expected !== "any" && present !== expected) return false;
      this.#remove.run(key);
      return true;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#database.isOpen) this.#database.close();
  }

  #read(key: string): Entry | undefined {
    const row = this.#get.get(key);
    return row === undefined ? undefined : entryOf(row);
  }

  #atomically<T>(action: () => T): T {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const result = action();
      this.#database.exec("COMMIT");
      return result;
    } catch (error) {
      this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}

function entryOf(row: Record<string, unknown>): Entry {
  return { key: String(row.key), value: String(row.value), revision: Number(row.revision) };
}

function migrate(database: DatabaseSync, path: string): void {
  // The lock comes first: two processes that start at once must not both migrate.
  database.exec("BEGIN IMMEDIATE");
  try {
    const version = Number(database.prepare("PRAGMA user_version").get()?.user_version);
    if (version > MIGRATIONS.length) {
      throw new SandboxError("FailedPrecondition", `${path} was written by a newer version of this program`, {
        hint: "start that version, or another data directory",
      });
    }
    for (const migration of MIGRATIONS.slice(version)) database.exec(migration);
    database.exec(`PRAGMA user_version = ${MIGRATIONS.length}; COMMIT`);
  } catch (error) {
    database.exec("ROLLBACK");
    throw error;
  }
}
