import { rmSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { setImmediate } from "node:timers/promises";
import type { LayerDigest } from "#core/sandbox.ts";
import { type BlobDigest, blobDigest, hexOf } from "../digest.ts";
import { type BlobChunk, parseChunks } from "./descriptor.ts";

/** A file of any other version is made anew. */
const VERSION = 1;

/** `chunk.blob` may name a blob that is gone: such rows say nothing, give way, and are swept now and then. */
const SCHEMA = `
  CREATE TABLE blob (id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, whole INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE chunk (digest BLOB PRIMARY KEY, blob INTEGER NOT NULL, block INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE content (digest TEXT PRIMARY KEY, layer TEXT NOT NULL) WITHOUT ROWID;
  PRAGMA user_version = ${VERSION};`;

/** Rows written between two turns of the event loop. */
const ROWS_A_TURN = 2000;

/**
 * Where the chunks of a store lie, and which layer has which content: one sqlite file beside the store, for all processes that use
 * it. It is a cache: what it lacks is stored twice, and what it says of chunks is made again from the lists beside the blobs.
 */
export class ChunkIndex implements Disposable {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  /** Opens the file at `path`; makes it anew when there is none, or one that is damaged or of another version. */
  static open(path: string): ChunkIndex {
    const opened = tryOpen(path);
    if (opened !== undefined) return new ChunkIndex(opened);
    for (const suffix of ["", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
    const made = tryOpen(path);
    if (made === undefined) throw new Error(`the index of chunks ${path} cannot be made`);
    return new ChunkIndex(made);
  }

  /** Runs `work` while no other process does: all of its changes here are kept, or none. */
  exclusively<T>(work: () => T): T {
    this.#prepare("BEGIN IMMEDIATE").run();
    try {
      const result = work();
      this.#prepare("COMMIT").run();
      return result;
    } catch (error) {
      // A full disk has rolled back already.
      if (this.#db.isTransaction) this.#prepare("ROLLBACK").run();
      throw error;
    }
  }

  /** Where a chunk lies, by the hex of its SHA-256. The blob may have been removed since. */
  find(digest: string): { readonly blob: BlobDigest; readonly block: number } | undefined {
    // Most are not here, and that is told in a third of the time that a join takes.
    const row = this.#prepare("SELECT blob, block FROM chunk WHERE digest = ?").get(Buffer.from(digest, "hex"));
    const blob = row && this.#prepare("SELECT digest FROM blob WHERE id = ?").get(row.blob ?? null);
    return blob && { blob: blobDigest(String(blob.digest)), block: Number(row.block) };
  }

  /** The blobs whose chunks are all here. */
  blobs(): ReadonlySet<BlobDigest> {
    const rows = this.#prepare("SELECT digest FROM blob WHERE whole = 1").all();
    return new Set(rows.map(({ digest }) => blobDigest(String(digest))));
  }

  /** Takes up the chunks of a blob from its list, whose lines are true of its data. */
  async add(blob: BlobDigest, list: string): Promise<void> {
    this.#prepare("INSERT OR IGNORE INTO blob (digest) VALUES (?)").run(hexOf(blob));
    const id = Number(this.#prepare("SELECT id FROM blob WHERE digest = ?").get(hexOf(blob))?.id);
    let rows: BlobChunk[] = [];
    for (const chunk of parseChunks(list)) {
      rows.push(chunk);
      if (rows.length < ROWS_A_TURN) continue;
      this.#insert(id, rows);
      rows = [];
      await setImmediate();
    }
    this.#insert(id, rows);
    this.#prepare("UPDATE blob SET whole = 1 WHERE id = ?").run(id);
  }

  #insert(id: number, chunks: readonly BlobChunk[]): void {
    const insert = this.#prepare(
      `INSERT INTO chunk (digest, blob, block) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE
       SET blob = excluded.blob, block = excluded.block WHERE chunk.blob NOT IN (SELECT id FROM blob)`,
    );
    this.exclusively(() => {
      for (const { digest, block } of chunks) insert.run(Buffer.from(digest, "hex"), id, block);
    });
  }

  /** Nothing is found in the blob from here on. */
  forget(blob: BlobDigest): void {
    this.#prepare("DELETE FROM blob WHERE digest = ?").run(hexOf(blob));
  }

  /** Makes room of what was forgotten: reads every row. */
  sweep(): void {
    this.#prepare("DELETE FROM chunk WHERE blob NOT IN (SELECT id FROM blob)").run();
  }

  /** The layer that was last made of this content; it may have been removed since. */
  layerOf(content: string): LayerDigest | undefined {
    const row = this.#prepare("SELECT layer FROM content WHERE digest = ?").get(content);
    return row === undefined ? undefined : (String(row.layer) as LayerDigest);
  }

  setLayer(content: string, layer: LayerDigest): void {
    this.#prepare("INSERT OR REPLACE INTO content VALUES (?, ?)").run(content, layer);
  }

  forgetLayer(layer: LayerDigest): void {
    this.#prepare("DELETE FROM content WHERE layer = ?").run(layer);
  }

  [Symbol.dispose](): void {
    if (this.#db.isOpen) this.#db.close();
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/** `undefined` when the file is no index of this version. */
function tryOpen(path: string): DatabaseSync | undefined {
  const db = new DatabaseSync(path);
  try {
    // A cut of power may cost the last rows, never the order of what is written: a row that lied would damage layers.
    db.exec("PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    db.exec("BEGIN IMMEDIATE");
    const version = Number(db.prepare("PRAGMA user_version").get()?.user_version);
    const isEmpty = db.prepare("SELECT 1 FROM sqlite_schema").get() === undefined;
    if (version === 0 && isEmpty) db.exec(SCHEMA);
    db.exec("COMMIT");
    if (version === VERSION || isEmpty) return db;
  } catch (error) {
    db.close();
    if (isDamage(error)) return undefined;
    throw error;
  }
  db.close();
  return undefined;
}

/** SQLITE_CORRUPT and SQLITE_NOTADB. */
function isDamage(error: unknown): boolean {
  return [11, 26].includes(resultOf(error));
}

/** True for sqlite's own word for a full disk. */
export function isIndexFull(error: unknown): boolean {
  return resultOf(error) === 13;
}

/** The result code of sqlite without its extension; 0 for other errors. */
function resultOf(error: unknown): number {
  return error instanceof Error && "errcode" in error ? Number(error.errcode) & 0xff : 0;
}
