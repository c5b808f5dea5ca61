import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { MNT, mount, unmount } from "#host/sys/mount.ts";
import { TestNode } from "../support/node.ts";
import { BASE, create, output, refused } from "../support/sandbox.ts";
import { tarOf } from "../support/tar.ts";

/** Room for the busybox base and little else. */
const STORE = "size=24m";

describe("a node whose layer store is on a full disk", () => {
  test("refuses imports, keeps nothing of them, and goes on", async () => {
    await using stack = new AsyncDisposableStack();
    const disk = mkdtempSync(join(tmpdir(), "dsec-disk-"));
    stack.defer(() => rmSync(disk, { recursive: true }));
    mount("tmpfs", disk, "tmpfs", 0, STORE);
    stack.defer(() => unmount(disk, MNT.DETACH));
    const folder = mkdtempSync(join(tmpdir(), "dsec-node-"));
    mkdirSync(join(folder, "data"));
    symlinkSync(disk, join(folder, "data/images"));
    const node = stack.use(new TestNode({ folder, edge: `t${randomBytes(6).toString("hex")}` }, {}));
    await node.start();
    await node.client.artifacts.build({ name: BASE, suite: BASE });
    const before = await node.client.artifacts.list();
    for (let at = 0; at < 3; at++) {
      const big = await tarOf({ name: "big", body: randomBytes(32 << 20) });
      await refused(node.client.artifacts.import(big, { name: "big", kind: "workspace" }), "StorageFull");
    }
    assert.deepEqual(await node.client.artifacts.list(), before);
    const small = await tarOf({ name: "small", body: "there is room" });
    await node.client.artifacts.import(small, { name: "small", kind: "workspace" });
    await using sandbox = await create(node, { workspace: "small" });
    assert.equal(await output(sandbox, "cat /small"), "there is room");
  });
});
