import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parsePlace, placeLayers } from "./place.ts";
import { archive, importBytes, temporaryStore } from "./test-support/fixtures.ts";
import { fsck, mounted } from "./test-support/inspect.ts";

describe("the place of an artifact", () => {
  test("is an absolute path of names", () => {
    assert.deepEqual(parsePlace("/"), []);
    assert.deepEqual(parsePlace("//srv/a b/é/"), ["srv", "a b", Buffer.from("é").toString("latin1")]);
  });

  test("is refused where a tree cannot lie or would not be seen", () => {
    const long = ["/".padEnd(4097, "a/"), `/${"n".repeat(256)}`];
    for (const path of ["", "repo", "./repo", "/a/../b", "/./a", "/a\0b", "/dev", "/proc/x", "//sys", ...long]) {
      assert.throws(() => parsePlace(path), { kind: "InvalidArgument", message: /cannot begin at/ }, path);
    }
  });

  test("is where the tree begins, in a layer that points into the same blobs", async () => {
    using made = await temporaryStore();
    const body = Buffer.alloc(3_000_000, "data ");
    const { layers } = await importBytes(
      made.store,
      archive(
        { path: ".", flag: "5", mode: 0o700 },
        { path: "src/file", body },
        { path: "link", flag: "1", target: "src/file" },
      ),
    );
    const before = await made.store.blobs.list();
    const name = "n".repeat(255);
    const [digest = assert.fail("no layer")] = await placeLayers(made.store, layers, ["tmp", name]);
    assert.deepEqual(await made.store.blobs.list(), before);
    await fsck(made.store, digest);
    using found = await mounted(made.store, digest);
    assert.ok(readFileSync(join(found.path, "tmp", name, "link")).equals(body));
    assert.equal(statSync(join(found.path, "tmp", name)).mode & 0o7777, 0o700);
    assert.equal(statSync(join(found.path, "tmp")).mode & 0o7777, 0o1777, "as in every base");
    assert.deepEqual(await placeLayers(made.store, layers, ["tmp", name]), [digest]);
    assert.deepEqual(await placeLayers(made.store, layers, []), layers);
  });
});
