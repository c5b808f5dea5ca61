import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { fsck, mounted } from "../test-support/inspect.ts";
import { buildDebian } from "./debian.ts";

const reason = existsSync("/usr/bin/mmdebstrap") ? false : "this host has no mmdebstrap";

/** Builds in a temporary directory of its own, so that what is left can be seen. */
function withTempDir(path: string): Disposable {
  const before = process.env.TMPDIR;
  process.env.TMPDIR = path;
  return {
    [Symbol.dispose]() {
      if (before === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = before;
    },
  };
}

describe("building a Debian base", { skip: reason, concurrency: false }, () => {
  test("gives a system with python3, without traces of this host, and tells of its progress", async () => {
    using temp = temporaryDirectory();
    using made = await temporaryStore();
    using _ = withTempDir(temp.path);
    const lines: string[] = [];
    const built = await buildDebian({ store: made.store, progress: (line) => lines.push(line) });
    const [digest = assert.fail("no layer")] = built.layers;
    await fsck(made.store, digest);
    using layer = await mounted(made.store, digest);
    const python = ["/usr/sbin/chroot", layer.path, "/usr/bin/python3", "-c", "import json; print(6*7)"];
    assert.equal(execFileSync("env", ["-i", ...python], { encoding: "utf8" }), "42\n");
    assert.ok(existsSync(join(layer.path, "usr/bin/apt-get")));
    for (const trace of ["var/log/dpkg.log", "dev/null"]) assert.ok(!existsSync(join(layer.path, trace)), trace);
    for (const place of ["etc/hostname", "etc/hosts", "etc/resolv.conf"]) {
      assert.equal(readFileSync(join(layer.path, place), "utf8"), "", place);
    }
    assert.ok(
      lines.some((line) => /installing/.test(line)),
      lines.join("\n"),
    );
    assert.deepEqual(
      readdirSync(temp.path).filter((name) => name.startsWith("dsec-debian-")),
      [],
    );
  });

  test("names a package that the suite does not have, and leaves nothing", async () => {
    using temp = temporaryDirectory();
    using made = await temporaryStore();
    using _ = withTempDir(temp.path);
    await assert.rejects(buildDebian({ store: made.store, include: ["no-such-package-anywhere"] }), {
      kind: "InvalidArgument",
      message: /no package no-such-package-anywhere/,
    });
    for (const path of [temp.path, join(made.store.dir, "tmp"), join(made.store.dir, "layers")]) {
      assert.deepEqual(readdirSync(path), []);
    }
  });

  test("that is given up ends with the signal's reason and leaves nothing", async () => {
    using temp = temporaryDirectory();
    using made = await temporaryStore();
    using _ = withTempDir(temp.path);
    const controller = new AbortController();
    const progress = (line: string): void => {
      if (/extracting|installing|downloading/.test(line)) controller.abort(new Error("enough"));
    };
    await assert.rejects(buildDebian({ store: made.store, signal: controller.signal, progress }), /enough/);
    for (const path of [temp.path, join(made.store.dir, "tmp")]) assert.deepEqual(readdirSync(path), []);
  });

  test("refuses names that are none before it starts anything", async () => {
    using made = await temporaryStore();
    for (const include of [["--hook=x"], ["a b"], ["A"], ["a,b"]]) {
      await assert.rejects(buildDebian({ store: made.store, include }), { kind: "InvalidArgument" });
    }
    await assert.rejects(buildDebian({ store: made.store, suite: "../etc" }), { kind: "InvalidArgument" });
  });
});
