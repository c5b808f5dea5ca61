import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { InstantDirs, Instants } from "./instants.ts";

test("an instant is there for each of its copies until the last has begun or is gone", async () => {
  await using dir = await mkdtempDisposable(join(tmpdir(), "instants-"));
  const edge = parseEdgeId("one");
  const [first, second, other] = [newSandboxId(edge), newSandboxId(edge), newSandboxId(edge)];
  const temp = new InstantDirs(dir.path).make({ sharedDir: undefined });
  const instants = new Instants<string>();
  instants.keep("then", temp, [first, second]);
  assert.equal(instants.of(second), "then");
  for (const id of [first, first, other]) await instants.release(id);
  assert.throws(() => instants.of(first), { kind: "SandboxLost" });
  assert.ok(existsSync(temp.path));
  await instants.release(second);
  assert.ok(!existsSync(temp.path));
});

test("a sweep removes what a dead process left, in the place for what is shared, and nothing of a live one", async () => {
  await using dir = await mkdtempDisposable(join(tmpdir(), "instants-"));
  const volume = { sharedDir: join(dir.path, "shared") };
  const dirs = new InstantDirs(join(dir.path, "plain"));
  await using live = dirs.make(volume);
  mkdirSync(join(volume.sharedDir, "instants/instant-dead"));
  await dirs.sweep(volume);
  assert.deepEqual(readdirSync(join(volume.sharedDir, "instants")), [live.path.slice(live.path.lastIndexOf("/") + 1)]);
});
