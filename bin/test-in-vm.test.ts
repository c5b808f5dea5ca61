import assert from "node:assert/strict";
import { test } from "node:test";
import { inVm } from "./test-in-vm.ts";

test("words behind --in-vm are machines by their names, and tests that run inside", () => {
  assert.deepEqual(inVm(["--in-vm"]), { files: ["tests/host-vm/debian-12"], inside: [] });
  assert.deepEqual(inVm(["host/cgroup", "--in-vm", "debian-13", "edge"]), {
    files: ["tests/host-vm/debian-13"],
    inside: ["host/cgroup", "edge"],
  });
  assert.throws(() => inVm(["--in-vm", "--in-wm"]), { kind: "InvalidArgument", message: /--in-wm/ });
});
