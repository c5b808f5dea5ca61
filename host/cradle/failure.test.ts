import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { createFailure } from "./failure.ts";

const { ENOSPC, EDQUOT, EMFILE, ENOENT, ELOOP, EEXIST, EROFS } = constants.errno;

test("a full volume, a quota, a full node and a bad image are told apart", () => {
  const kinds = [
    createFailure("a", "overlay: create", ENOSPC),
    createFailure("a", "overlay: make it writable", EROFS),
    createFailure("a", "overlay: create", EDQUOT),
    createFailure("a", "clone the sandbox", ENOSPC),
    createFailure("a", "overlay: open", EMFILE),
    createFailure("a", "place of /proc", ELOOP),
    createFailure("a", "cgroup /c: make", EEXIST),
    createFailure("a", "layer /x", ENOENT),
  ].map((error) => error.kind);
  assert.deepEqual(kinds, [
    "StorageFull",
    "StorageFull",
    "SandboxLimit",
    "NodeFull",
    "NodeFull",
    "FailedPrecondition",
    "FailedPrecondition",
    "Internal",
  ]);
});

test("stage and errno are facts in the details", () => {
  const error = createFailure("box", "layer /x", ENOENT);
  assert.deepEqual(error.details, { stage: "layer /x", errno: "ENOENT" });
  assert.match(error.message, /box.*layer \/x/);
  assert.ok(error.hint);
  assert.equal(createFailure("box", "s", 4000).details.errno, "errno 4000");
});
