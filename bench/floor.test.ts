import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { measureFloor } from "./floor.ts";
import { Peers } from "./peers.ts";

const isBuilt = existsSync(join(import.meta.dirname, "../.build/floor"));

test("the floor gives a time a round and leaves no mount", {
  skip: isBuilt ? false : "the floor is not built",
}, async () => {
  await using peers = new Peers();
  const times = measureFloor(peers.rootfs, 5);
  assert.equal(times.length, 5);
  for (const time of times) assert.ok(time > 0.1 && time < 1_000, `${time} ms`);
  assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes("dsec-floor-"));
});
