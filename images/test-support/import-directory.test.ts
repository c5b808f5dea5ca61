import assert from "node:assert/strict";
import { chmodSync, linkSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { run, temporaryDirectory, temporaryStore } from "./fixtures.ts";
import { importDirectory } from "./import-directory.ts";
import { mounted } from "./inspect.ts";

describe("importing a directory", () => {
  test("never follows a link, not even where the directory itself is one", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    mkdirSync(join(source.path, "real"));
    symlinkSync("real", join(source.path, "link"));
    symlinkSync("/etc", join(source.path, "real/etc"));
    await assert.rejects(importDirectory(join(source.path, "link"), { store: made.store }), {
      kind: "InvalidArgument",
    });
    const { layers } = await importDirectory(join(source.path, "real"), { store: made.store });
    using layer = await mounted(made.store, layers[0] ?? assert.fail("no layer"));
    assert.equal(run("readlink", join(layer.path, "etc")), "/etc\n");
  });

  test("says what is wrong with a path that is missing or no directory", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    writeFileSync(join(source.path, "file"), "");
    const importing = (name: string) => importDirectory(join(source.path, name), { store: made.store });
    await assert.rejects(importing("nothing"), { kind: "InvalidArgument", message: /does not exist/ });
    await assert.rejects(importing("file"), { kind: "InvalidArgument", message: /is not a directory/ });
  });

  test("can give everything to root, and leaves sockets out", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    writeFileSync(join(source.path, "f"), "x");
    run("chown", "70000:70000", join(source.path, "f"));
    const server = createServer().listen(join(source.path, "socket"));
    await new Promise((resolve) => server.once("listening", resolve));
    try {
      await assert.rejects(importDirectory(source.path, { store: made.store }), { message: /belongs to 70000/ });
      const { layers } = await importDirectory(source.path, { store: made.store, ownedByRoot: true });
      using layer = await mounted(made.store, layers[0] ?? assert.fail("no layer"));
      assert.equal(run("ls", layer.path), "f\n");
      assert.equal(statSync(join(layer.path, "f")).uid, 0);
    } finally {
      server.close();
    }
  });

  test("gives equal trees equal layers, wherever they lie and in whatever order they were made", async () => {
    using made = await temporaryStore();
    using first = temporaryDirectory();
    using second = temporaryDirectory();
    const names = Array.from({ length: 50 }, (_, index) => `file-${index}`);
    for (const [root, order] of [
      [first.path, names],
      [second.path, names.toReversed()],
    ] as const) {
      for (const name of order) writeFileSync(join(root, name), `content of ${name}`);
      linkSync(join(root, "file-1"), join(root, "another-name"));
      chmodSync(root, 0o755);
      run("find", root, "-exec", "touch", "-h", "-d", "@1000000000", "{}", "+");
    }
    const [a, b] = [
      await importDirectory(first.path, { store: made.store }),
      await importDirectory(second.path, { store: made.store }),
    ];
    assert.deepEqual(a.layers, b.layers);
  });

  test("ends with the signal's reason", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    writeFileSync(join(source.path, "f"), "x");
    const signal = AbortSignal.abort(new Error("no more"));
    await assert.rejects(importDirectory(source.path, { store: made.store, signal }), /no more/);
    assert.deepEqual(await made.store.list(), []);
    assert.equal(readFileSync(join(source.path, "f"), "utf8"), "x");
  });
});
