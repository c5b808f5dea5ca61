import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { toWire } from "#core/errors.ts";
import { createFailure } from "./failure.ts";

const { ENOSPC, EDQUOT, EMFILE, ENOENT, ELOOP, EEXIST, EROFS, EINVAL } = constants.errno;

test("a full volume, a quota, a full node and a bad image are told apart", () => {
  const kinds = [
    createFailure("a", "overlay: create", ENOSPC),
    createFailure("a", "overlay: make it writable", EROFS),
    createFailure("a", "overlay: create", EDQUOT),
    createFailure("a", "clone the sandbox", ENOSPC),
    createFailure("a", "overlay: open", EMFILE),
    createFailure("a", "place of /proc", ELOOP),
    createFailure("a", "cgroup /c: make", EEXIST),
    createFailure("a", "shift the ids of the upper", EINVAL),
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
    "FailedPrecondition",
    "Internal",
  ]);
});

test("stage and errno are facts in the details", () => {
  const error = createFailure("box", "layer /x", ENOENT);
  assert.deepEqual(error.details, { stage: "layer", errno: "ENOENT" });
  assert.match(error.message, /box.*layer: ENOENT/);
  assert.ok(error.hint);
  assert.equal(createFailure("box", "s", 4000).details.errno, "errno 4000");
});

test("a failed step names no path of the host to the caller, and all of them to the log", () => {
  for (const stage of [
    "cgroup /sys/fs/cgroup/memory/dsec/x: write 1 to memory.limit_in_bytes",
    "agent cgroup /sys/fs/cgroup/dsec: enter",
    "layer /run/dsec/layers/abc",
    "upper /run/dsec/volume/x/upper and work /run/dsec/volume/x/work: split",
    "clone /run/dsec/volume/x/",
    "socket /run/dsec/sandboxes/x/agent.sock: bind",
  ]) {
    const failure = createFailure("s1-a", stage, ENOENT);
    assert.doesNotMatch(JSON.stringify(toWire(failure)), /\/(run|sys)/);
    assert.equal((failure.cause as Error).message, stage);
  }
  assert.match(createFailure("s1-a", "place of /etc/hosts", ELOOP).message, /\/etc\/hosts/);
});
