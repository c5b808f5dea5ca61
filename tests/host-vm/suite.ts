import assert from "node:assert/strict";
import { existsSync, globSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { bootGuest, type Guest, QEMU } from "./guest.ts";
import { buildImage } from "./image.ts";

const ROOT = join(import.meta.dirname, "../..");
const MINUTE_MS = 60_000;
/** A suite that takes a minute takes ten where the processor is emulated, and several times as long where the machine is busy. */
const SUITE_MS = 60 * MINUTE_MS;
const SET_UP_MS = 15 * MINUTE_MS;

/** Words of `./dsec test --in-vm`; none: those below. */
const ASKED = process.env.DSEC_TESTS_IN_VM ?? "";
/** Tests of the tree that ask about the kernel of the host, as words of `./dsec test`. */
const USUAL = [
  "host/apparmor",
  "host/cgroup",
  "host/volume",
  "backends/container",
  "edge/container",
  // File by file: a processor that is emulated has no time for two at once, and what fails is told before the next begins.
  ...globSync("tests/contract/container/*.test.ts", { cwd: ROOT }).sort(),
  "tests/faults/lifecycle",
  "tests/faults/limits",
];

const SUITES = ASKED === "" ? USUAL : [ASKED];

/** A host that many people have and the machine of the tests may not be: its release and the kernel it brings. */
export interface HostVm {
  readonly suite: string;
  readonly kernel: RegExp;
}

/** The tests of the tree, unchanged, on a machine of its own: only cgroup v2, AppArmor, and the kernel of a release. */
export function hostVmSuite({ suite, kernel }: HostVm): void {
  const skip = existsSync(QEMU) ? false : `${QEMU} is missing: ./dsec test host-vm installs it`;
  describe(`a host with Debian ${suite}, cgroup v2 alone and AppArmor`, { skip }, () => {
    let folder: string;
    let guest: Guest | undefined;
    before(
      async () => {
        folder = mkdtempSync("/var/tmp/dsec-host-vm-");
        const image = await buildImage(suite, folder);
        guest = await bootGuest(image, folder);
        // Open files stay for QEMU; nothing large is left when this process is killed.
        for (const file of Object.values(image)) rmSync(file);
      },
      { timeout: SET_UP_MS },
    );
    after(async () => {
      await guest?.[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    });

    async function succeed(t: TestContext, line: string, limitMs = 5 * MINUTE_MS): Promise<string> {
      assert.ok(guest);
      const { status, output } = await guest.run(line, limitMs, (text) => process.stderr.write(`  | ${text}`));
      t.diagnostic(`${guest.accelerator}: ${line}`);
      assert.equal(status, 0, output.slice(-4_000));
      return output;
    }

    test("is what it is said to be", async (t) => {
      assert.match(await succeed(t, "uname -r"), kernel);
      assert.equal(await succeed(t, "stat -f -c %T /sys/fs/cgroup"), "cgroup2fs\n");
      assert.equal(await succeed(t, "cat /sys/module/apparmor/parameters/enabled"), "Y\n");
    });

    test("builds, and doctor finds nothing missing that containers need", async (t) => {
      const facts = await succeed(t, "./dsec doctor", SET_UP_MS);
      for (const name of ["cgroups", "swap accounting", "apparmor", "overlay over id-mapped layers", "btrfs quotas"]) {
        assert.match(facts, new RegExp(`^ok +${name}:`, "m"));
      }
    });

    test("runs a command in a sandbox", async (t) => {
      const printed = await succeed(t, "./dsec run --base host-busybox -- sh -c 'echo $((6*7))'");
      assert.match(printed, /^42$/m);
      await succeed(t, "./dsec down");
    });

    for (const words of SUITES) {
      test(`passes ${words}`, { timeout: SUITE_MS }, async (t) => {
        await succeed(t, `node bin/dsec.ts test ${words}`, SUITE_MS);
      });
    }
  });
}
