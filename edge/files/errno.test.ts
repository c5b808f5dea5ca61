import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { errnoError, errnoName } from "./errno.ts";

/** Node has no name for it. */
const EUSERS = 87;

/** How file operations of people fail. */
const EXPECTED = {
  NotFound: ["ENOENT"],
  PermissionDenied: ["EACCES", "EPERM", "EROFS"],
  AlreadyExists: ["EEXIST"],
  FailedPrecondition: ["ENOTEMPTY", "EXDEV", "ESTALE", "EBUSY", "ETXTBSY"],
  SandboxLimit: ["ENOSPC", "EDQUOT", "EFBIG", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EUSERS"],
  Cancelled: ["ECANCELED"],
  Internal: ["EIO"],
  InvalidArgument: ["ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG", "EINVAL"],
} as const;

test("each way in which a file operation fails has its kind, its errno and advice", () => {
  for (const [kind, names] of Object.entries(EXPECTED)) {
    for (const name of names) {
      const error = errnoError(name === "EUSERS" ? EUSERS : constants.errno[name], "read /x");
      assert.deepEqual([error.kind, error.message, error.details], [kind, `read /x: ${name}`, { errno: name }]);
      assert.ok((error.hint ?? "").length > 10, name);
    }
  }
});

test("one that nobody foresaw is told by its name or its number, with the entry of a tree", () => {
  const error = errnoError(999, "read the tree /x", 'a"b');
  assert.deepEqual([error.kind, error.hint], ["InvalidArgument", undefined]);
  assert.equal(error.message, 'read the tree /x: errno 999 at "a\\"b"');
  assert.deepEqual(error.details, { errno: "errno 999", entry: 'a"b' });
  assert.equal(errnoName(constants.errno.EPIPE), "EPIPE");
});
