import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import { MemoryState } from "./memory.ts";
import { SqliteState } from "./sqlite.ts";
import { stateStoreContract } from "./state-suite.ts";

const directory = mkdtempSync(join(tmpdir(), "state-"));
after(() => rmSync(directory, { recursive: true }));
const fresh = (() => {
  let number = 0;
  return () => join(directory, `${number++}.db`);
})();

stateStoreContract("memory", () => new MemoryState());
stateStoreContract("sqlite", () => new SqliteState(fresh()));

test("what was written is there after the file is opened again, and revisions go on rising", async () => {
  const path = fresh();
  let revision: number | undefined;
  {
    await using store = new SqliteState(path);
    revision = await store.put("a", "1", "absent");
  }
  await using store = new SqliteState(path);
  assert.deepEqual(await store.get("a"), { key: "a", value: "1", revision });
  assert.ok((await store.put("b", "1", "absent")) === (revision ?? 0) + 1);
});

test("two stores on one file see each other's writes and never both win", async () => {
  const path = fresh();
  await using one = new SqliteState(path);
  await using two = new SqliteState(path);
  const revision = await one.put("a", "1", "absent");
  assert.ok(revision !== undefined);
  assert.equal(await two.put("a", "2", "absent"), undefined);
  assert.ok((await two.put("a", "2", revision)) !== undefined);
  assert.equal(await one.put("a", "3", revision), undefined);
  assert.equal((await one.get("a"))?.value, "2");
});

test("a file of a newer version is refused and left alone", () => {
  const path = fresh();
  const database = new DatabaseSync(path);
  database.exec("PRAGMA user_version = 99");
  database.close();
  assert.throws(() => new SqliteState(path), { kind: "FailedPrecondition" });
});
