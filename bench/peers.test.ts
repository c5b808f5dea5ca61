import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { PEERS, Peers } from "./peers.ts";

test("every peer runs in the bundle, and disposing removes it", async () => {
  let rootfs: string;
  {
    await using peers = new Peers();
    rootfs = peers.rootfs;
    for (const peer of PEERS) {
      const times = await peers.run(peer, 3);
      assert.equal(times.length, 3);
      for (const time of times) assert.ok(time > 0.5 && time < 10_000, `${peer} took ${time} ms`);
    }
  }
  assert.equal(existsSync(rootfs), false);
});
