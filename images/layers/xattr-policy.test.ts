import assert from "node:assert/strict";
import { test } from "node:test";
import { keptXattrs } from "./xattr-policy.ts";

test("an attribute whose name ends early is refused, wherever it came from: a list of names would show two", () => {
  const value = Buffer.from("value");
  const named = (name: string) => keptXattrs("file", new Map([[name, value]]));
  assert.deepEqual([...(named("user.plain") ?? [])], [["user.plain", value]]);
  assert.throws(() => named("user.plain\0trusted.overlay.redirect"), {
    kind: "InvalidArgument",
    message: /impossible/,
  });
  // What is not kept is nobody's concern.
  assert.equal(named("security.selinux\0more"), undefined);
});
