import assert from "node:assert/strict";
import { test } from "node:test";
import { output, refused } from "../../support/sandbox.ts";
import { CONTAINER } from "./backend.ts";

test("a container is not paused: the call is refused by name, and it goes on", { timeout: 120_000 }, async () => {
  await using node = await CONTAINER.startNode();
  await using sandbox = await CONTAINER.create(node);
  await refused(sandbox.pause(), "FailedPrecondition", /container backend cannot be paused/);
  assert.equal((await sandbox.resume()).state, "ready");
  assert.equal(await output(sandbox, "echo on"), "on");
});
