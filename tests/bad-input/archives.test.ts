import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { TestNode } from "../support/node.ts";
import { create, output, refused, startNodeWithBase } from "../support/sandbox.ts";
import { type Entry, tarOf } from "../support/tar.ts";

describe("an import", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(async () => {
    const names = (await node.client.artifacts.list()).map(({ name }) => name).sort();
    await node[Symbol.asyncDispose]();
    assert.deepEqual(names, ["good", "host-busybox"], "a refused import has left an artifact");
  });

  const load = (bytes: Uint8Array, name = "bad") => node.client.artifacts.import(bytes, { name, kind: "workspace" });

  test("of a sound archive works", async () => {
    await load(gzipSync(await tarOf({ name: "src/a", body: "hello" })), "good");
    await using sandbox = await create(node, { workspace: "good" });
    assert.equal(await output(sandbox, "cat /src/a"), "hello");
  });

  const hostile: readonly (readonly [string, Entry])[] = [
    ["a way out by ..", { name: "../etc/passwd", body: "x" }],
    ["a way out in the middle of a path", { name: "a/../../b", body: "x" }],
    ["a hard link out of the tree", { name: "a", type: "link", linkname: "../../etc/shadow" }],
    ["a hard link to nothing", { name: "a", type: "link", linkname: "none" }],
    ["a device", { name: "disk", type: "block-device", devmajor: 8, devminor: 0 }],
    ["an id beyond a sandbox's range", { name: "a", uid: 70_000, body: "x" }],
  ];
  for (const [what, entry] of hostile) {
    test(`with ${what} is refused`, async () => {
      await refused(load(await tarOf({ name: "first", body: "x" }, entry)), "InvalidArgument");
    });
  }

  test("with an absolute path stays beneath the root or is refused", async () => {
    const call = load(await tarOf({ name: "/abs/file", body: "x" }));
    const imported = await call.then(
      () => true,
      (error: { kind?: string }) => assert.equal(error.kind, "InvalidArgument"),
    );
    if (imported) await node.client.artifacts.remove("bad");
  });

  test("that breaks off or is damaged is refused", async () => {
    const whole = gzipSync(await tarOf({ name: "a", body: "x".repeat(100_000) }));
    await refused(load(whole.subarray(0, whole.length >> 1)), "InvalidArgument");
    await refused(
      load(whole.map((byte, index) => (index === whole.length >> 1 ? byte ^ 0xff : byte))),
      "InvalidArgument",
    );
    await refused(load(new TextEncoder().encode("this is no archive")), "InvalidArgument");
  });

  test("under a name that is none is refused", async () => {
    await refused(load(await tarOf({ name: "a", body: "x" }), "Not A Name"), "InvalidArgument", /name/);
  });
});
