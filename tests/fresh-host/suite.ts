import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeSystem, obstacle, type Release, runIn } from "./system.ts";

const MINUTE_MS = 60_000;
/** Ten times what it takes a machine that has nothing else to do. */
const LIMIT_MS = { system: 20 * MINUTE_MS, run: 30 * MINUTE_MS, test: 110 * MINUTE_MS };
/** What people are shown of an end that nobody expected. */
const LAST_LINES = 100;

/** Both commands of the README, on the smallest system of a release that has neither Node nor anything of a node's. */
export function freshHostSuite(release: Release): void {
  describe(`a fresh ${release.distribution} ${release.suite}`, () => {
    let folder: string;
    let system: string | undefined;
    let reason: string | undefined;
    before(
      async () => {
        folder = mkdtempSync("/var/tmp/dsec-fresh-host-");
        reason = await obstacle(release);
        if (reason === undefined) system = await makeSystem(release, folder);
      },
      { timeout: LIMIT_MS.system },
    );
    after(() => rmSync(folder, { recursive: true }));

    /** Lines that a command printed; fails when it fails. */
    async function succeed(argv: readonly string[]): Promise<readonly string[]> {
      assert.ok(system);
      const lines: string[] = [];
      const status = await runIn(system, argv, (line) => {
        lines.push(line);
        process.stderr.write(`  | ${line}\n`);
      });
      assert.equal(status, 0, lines.slice(-LAST_LINES).join("\n"));
      return lines;
    }

    test("runs a command in a sandbox, and a second time at once", { timeout: LIMIT_MS.run }, async (t) => {
      if (system === undefined) return t.skip(reason);
      assert.ok(!existsSync(join(system, "usr/bin/node")) && !existsSync(join(system, "usr/bin/gcc")));
      const run = "./dsec run --base debian -- python3 -c 'print(6*7)'";
      const lines = await succeed(["sh", "-c", `${run} && ${run} && ./dsec down`]);
      assert.equal(lines.filter((line) => line === "42").length, 2);
    });

    test("passes ./dsec test", { timeout: LIMIT_MS.test }, async (t) => {
      if (system === undefined) return t.skip(reason);
      const lines = await succeed(["./dsec", "test"]);
      assert.ok(lines.includes("ℹ fail 0"));
      t.diagnostic(lines.filter((line) => /^(ℹ (tests|pass|fail|skipped)|unsteady)/.test(line)).join("; "));
    });
  });
}
