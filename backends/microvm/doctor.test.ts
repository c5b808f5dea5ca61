import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { machineFact } from "./doctor.ts";
import { isKvmThere } from "./probe.ts";

const BUILD = join(import.meta.dirname, "../../.build");
const programs = { agent: join(BUILD, "dsec-agent"), cradle: join(BUILD, "dsec-cradle"), shell: "/bin/bash-static" };
const UID = 0x0800_0000;

test("a node that cannot enforce a limit: what runs machines is told with the reason, a device alone is none", async () => {
  const fact = await machineFact({ guestDir: join(BUILD, "guest"), programs, uid: UID });
  if (!(await isQemuThere()))
    assert.deepEqual(
      [fact.state, fact.detail],
      ["missing", "this node runs no virtual machines: QEMU is not installed"],
    );
  else if (fact.state === "works") assert.match(fact.detail, /^qemu \S+ with KVM: a guest has booted$/);
  else assert.match(fact.detail, isKvmThere() ? /^qemu .*\(tcg\): \S/ : /^qemu .*\(tcg\): there is no/);
  assert.equal(fact.how === "", fact.state === "works");
});

test("what cannot even be tried is a finding, not a fault", async () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-doctor-"));
  try {
    const nothing = { agent: join(dir, "none"), cradle: join(dir, "none"), shell: join(dir, "none") };
    const fact = await machineFact({ guestDir: join(BUILD, "guest"), programs: nothing, uid: UID });
    assert.equal(fact.state, isKvmThere() || !(await isQemuThere()) ? "missing" : "partial");
    assert.ok(fact.detail.length > 0);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

function isQemuThere(): Promise<boolean> {
  return openQemu().then(
    () => true,
    () => false,
  );
}
