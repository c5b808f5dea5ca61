import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";

const FLOOR = resolve(import.meta.dirname, "../../.build/floor");

describe("floor", () => {
  let dir: string;

  before(() => {
    execFileSync("make", ["-s", "-C", import.meta.dirname]);
    dir = mkdtempSync(join(tmpdir(), "dsec-floor-"));
    for (const part of ["lower/bin", "lower/proc", "lower/tmp", "uppers"])
      mkdirSync(join(dir, part), { recursive: true });
    const busybox = ["/bin/busybox", "/usr/bin/busybox"].find((path) => existsSync(path));
    assert.ok(busybox, "the package busybox-static is missing");
    copyFileSync(busybox, join(dir, "lower/bin/true"));
  });
  after(() => rmSync(dir, { recursive: true }));

  test("prints the microseconds of each round, and leaves no mount", () => {
    const mounts = readFileSync("/proc/self/mountinfo", "utf8");
    const times: unknown = JSON.parse(
      execFileSync(FLOOR, ["5", join(dir, "lower"), join(dir, "uppers")], { encoding: "utf8" }),
    );
    assert.ok(Array.isArray(times) && times.length === 5);
    for (const time of times) assert.ok(Number.isInteger(time) && time > 100 && time < 10_000_000, String(time));
    assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes(dir), mounts);
  });

  test("fails when a round does, instead of printing a time", () => {
    const fresh = join(dir, "fresh");
    mkdirSync(fresh);
    rmSync(join(dir, "lower/bin/true"));
    const run = spawnSync(FLOOR, ["5", join(dir, "lower"), fresh], { encoding: "utf8" });
    assert.equal(run.status, 1);
    assert.match(run.stderr, /\/bin\/true/);
    assert.equal(spawnSync(FLOOR, ["0", dir, dir]).status, 2);
  });
});
