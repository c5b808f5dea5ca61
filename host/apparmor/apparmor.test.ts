import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { isAppArmorOn, loadSandboxProfile } from "./apparmor.ts";

const PROFILE = join(import.meta.dirname, "dsec-sandbox");
const isOn = isAppArmorOn();

describe("AppArmor of this host", () => {
  test("is on when the kernel says so, and off when it is built in only or not at all", (t) => {
    const dir = mkdtempSync(join(tmpdir(), "apparmor-"));
    t.after(() => rmSync(dir, { recursive: true }));
    writeFileSync(join(dir, "on"), "Y\n");
    writeFileSync(join(dir, "off"), "N\n");
    assert.deepEqual(
      ["on", "off", "absent"].map((name) => isAppArmorOn(join(dir, name))),
      [true, false, false],
    );
  });

  test("without it, or without its parser, there is no profile and a reason for people", async () => {
    const { profile, reason } = await loadSandboxProfile("dsec-no-such-parser");
    assert.equal(profile, undefined);
    assert.match(reason ?? "", isOn ? /package apparmor/ : /does not enforce AppArmor/);
  });

  test("a profile that is not taken is an error, not less confinement", { skip: whyNot() }, async () => {
    await assert.rejects(loadSandboxProfile("false"), { kind: "FailedPrecondition" });
  });
});

test("the profile knows exactly the capabilities that the agent leaves to its children", () => {
  const agent = readFileSync(join(import.meta.dirname, "../../guest/agent/confine.c"), "utf8");
  const kept = /kept\[\] = \{([^}]*)\}/.exec(agent)?.[1]?.match(/CAP_\w+/g) ?? [];
  const known = readFileSync(PROFILE, "utf8").match(/(?<=^ *capability )\w+/gm) ?? [];
  assert.deepEqual(known.toSorted(), kept.map((name) => name.slice("CAP_".length).toLowerCase()).toSorted());
});

describe("the profile of sandboxes, alone, on the host's root", { skip: whyNot() }, () => {
  let dir: string;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), "apparmor-"));
    assert.equal((await loadSandboxProfile()).profile, "dsec-sandbox");
  });
  after(() => rmSync(dir, { recursive: true }));

  /** Exit status of a shell line after some words, in mounts of its own, where `mounted` is one. */
  async function status(line: string, ...words: readonly string[]): Promise<number> {
    const script = 'mkdir -p mounted && mount -t tmpfs none mounted && exec "$@"';
    const args = ["--mount", "--propagation", "private", "sh", "-c", script, "sh", ...words, "sh", "-c", line];
    return run("unshare", args, { cwd: dir }).then(
      () => 0,
      (error: { code: number }) => error.code,
    );
  }
  const confined = (line: string) => status(line, "aa-exec", "-p", "dsec-sandbox", "--");

  test("leaves files and programs to it", async () => {
    assert.equal(
      await confined("echo text >file && chmod 700 file && cat file && mkdir -p d && mv file d && rm -r d"),
      0,
    );
    assert.equal(await confined("sleep 100 & kill $! && cat /proc/self/status /proc/meminfo >/dev/null"), 0);
  });

  for (const [what, line] of [
    ["mount", "mount -t tmpfs none ."],
    ["unmount", "umount mounted"],
    ["press keys for the kernel", "echo h >/proc/sysrq-trigger"],
    [
      "set parameters of the kernel",
      "cat /proc/sys/kernel/core_pattern >pattern; cat pattern >/proc/sys/kernel/core_pattern",
    ],
    ["read the kernel's memory", "head -c 1 /proc/kcore"],
    ["write to the kernel's objects", "cat /sys/kernel/profiling >state; cat state >/sys/kernel/profiling"],
    ["read the profiles themselves", "cat /sys/kernel/security/apparmor/profiles"],
    ["look into programs that have no profile", `cat /proc/${process.pid}/environ`],
    ["signal programs that have no profile", `kill -0 ${process.pid}`],
    ["use a capability that was not left", 'hostname "$(hostname)"'],
  ] as const) {
    test(`does not let it ${what}`, async () => {
      assert.notEqual(await confined(line), 0);
      // What is refused for another reason shows nothing.
      assert.equal(await status(line), 0);
    });
  }
});

function whyNot(): string | false {
  return isOn ? false : "AppArmor is not in force in this kernel";
}

const run = promisify(execFile);
