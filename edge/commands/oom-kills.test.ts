import assert from "node:assert/strict";
import { test } from "node:test";
import type { OomVictim } from "#core/usage.ts";
import { OomKills } from "#edge/commands/oom-kills.ts";

const MIB = 1024 * 1024;
const victim = (atMs: number, residentBytes = 50 * MIB): OomVictim => ({
  program: "hog",
  atMs,
  residentBytes,
  full: "sandbox",
});
const HOG = { startedAtMs: 100_000, maxRssKiB: 60 * 1024 };
const SMALL = { startedAtMs: 100_000, maxRssKiB: 1_024 };

test("a kill explains one death", () => {
  const kills = new OomKills();
  const usage = { oomKills: 1, oomVictims: [victim(100_500)] };
  assert.deepEqual([kills.claim(usage, HOG), kills.claim(usage, HOG)], [true, false]);
  assert.equal(kills.claim({ oomKills: 2, oomVictims: [victim(100_500), victim(100_600)] }, HOG), true);
});

test("a kill before the command began explains nothing of it", () => {
  assert.equal(new OomKills().claim({ oomKills: 1, oomVictims: [victim(50_000)] }, HOG), false);
});

test("a small command was not the large one that was killed, and the large one still finds its kill", () => {
  const kills = new OomKills();
  const usage = { oomKills: 1, oomVictims: [victim(100_500)] };
  assert.equal(kills.claim(usage, SMALL), false);
  assert.equal(kills.claim(usage, HOG), true);
});

test("where the log is silent the count decides", () => {
  const kills = new OomKills();
  assert.deepEqual(
    [kills.claim({ oomKills: 1, oomVictims: [] }, SMALL), kills.claim({ oomKills: 1, oomVictims: [] }, SMALL)],
    [true, false],
  );
  assert.equal(kills.claim({ oomKills: 3, oomVictims: [victim(50_000)] }, SMALL), true);
});

test("what an earlier edge explained is explained", () => {
  assert.equal(new OomKills(1).claim({ oomKills: 1, oomVictims: [victim(100_500)] }, HOG), false);
});
