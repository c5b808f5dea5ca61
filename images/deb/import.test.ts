import assert from "node:assert/strict";
import { linkSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { LayerDigest } from "#core/sandbox.ts";
import type { ImportedArtifact } from "../import.ts";
import { hostArchitecture } from "../oci/select.ts";
import type { LayerStore } from "../store.ts";
import { ar, deb, unpackWithDpkg } from "../test-support/deb.ts";
import {
  archive,
  importBytes,
  type Member,
  run,
  temporaryDirectory,
  temporaryStore,
} from "../test-support/fixtures.ts";
import { fsck, mounted, snapshot } from "../test-support/inspect.ts";
import { makeNastyTree } from "../test-support/nasty-tree.ts";

const importDebs = (store: LayerStore, ...packages: readonly Buffer[]): Promise<ImportedArtifact> =>
  importBytes(store, Buffer.concat(packages), { format: "deb", kind: "toolkit" });

function onlyLayer({ layers }: ImportedArtifact): LayerDigest {
  assert.equal(layers.length, 1);
  return layers[0] ?? assert.fail("no layer");
}

/** A package that dpkg's own builder made of a tree. */
function built(tree: string, name: string, compression: string): string {
  const file = join(tree, "..", `${name}.deb`);
  mkdirSync(join(tree, "DEBIAN"), { mode: 0o755 });
  writeFileSync(
    join(tree, "DEBIAN/control"),
    `Package: ${name}\nVersion: 1:2~3+4-5\nArchitecture: ${hostArchitecture()}\nMaintainer: x <x@example.org>\nDescription: x\n`,
  );
  writeFileSync(join(tree, "DEBIAN/postinst"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  run("dpkg-deb", "--build", `-Z${compression}`, tree, file);
  return file;
}

describe("importing Debian packages", () => {
  for (const compression of ["none", "gzip", "xz", "zstd"]) {
    test(`gives what dpkg-deb -x gives, inode by inode, of a package compressed with ${compression}`, async () => {
      using made = await temporaryStore();
      using work = temporaryDirectory();
      const [tree, unpacked] = [join(work.path, "tree"), join(work.path, "unpacked")];
      for (const path of [tree, unpacked, join(tree, "lib"), join(tree, "usr"), join(tree, "usr/lib")]) mkdirSync(path);
      makeNastyTree(join(tree, "usr/lib"));
      // dpkg-deb packs neither a name with a newline nor a device.
      run("rm", "-r", join(tree, "usr/lib/whiteout"), join(tree, "usr/lib/names/\n"));
      mkdirSync(join(tree, "bin"));
      writeFileSync(join(tree, "bin/tool"), "tool", { mode: 0o4755 });
      linkSync(join(tree, "bin/tool"), join(tree, "lib/same"));
      symlinkSync("../lib/same", join(tree, "bin/link"));
      const file = built(tree, "nasty", compression);
      unpackWithDpkg(unpacked, [file]);
      const layer = onlyLayer(await importDebs(made.store, readFileSync(file)));
      await fsck(made.store, layer);
      using mount = await mounted(made.store, layer);
      // What dpkg-deb packs has no extended attributes.
      assert.deepEqual(withoutMerged(snapshot(mount.path)), withoutMerged(snapshot(unpacked)));
      assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
    });
  }

  test("takes several at once, one after the other; scripts and dpkg's own records are no part of the layer", async () => {
    using made = await temporaryStore();
    const files = (path: string) => archive({ path: "./usr/", flag: "5", mode: 0o755 }, { path, body: path });
    const layer = onlyLayer(
      await importDebs(
        made.store,
        deb({ name: "one", data: files("./usr/one") }),
        deb({ name: "two", data: files("./usr/two") }),
      ),
    );
    using mount = await mounted(made.store, layer);
    assert.deepEqual([...snapshot(mount.path).keys()], ["", "/usr", "/usr/one", "/usr/two"]);
  });

  test("a file of two packages is that of the one that replaces the other, in any order; else both are refused", async () => {
    const data = (body: string) => archive({ path: "./usr/tool", body });
    const plain = deb({ name: "old", data: data("old") });
    const replacing = deb({ name: "new", fields: "Replaces: other (<< 1), old (<< 2)\n", data: data("new") });
    for (const packages of [
      [plain, replacing],
      [replacing, plain],
    ]) {
      using made = await temporaryStore();
      using mount = await mounted(made.store, onlyLayer(await importDebs(made.store, ...packages)));
      assert.equal(readFileSync(join(mount.path, "usr/tool"), "utf8"), "new");
    }
    const directory = deb({ name: "new", data: archive({ path: "./usr/tool/", flag: "5" }) });
    for (const second of [deb({ name: "new", data: data("new") }), directory]) {
      for (const packages of [
        [plain, second],
        [second, plain],
      ]) {
        using made = await temporaryStore();
        await assert.rejects(importDebs(made.store, ...packages), {
          kind: "InvalidArgument",
          message: /"usr\/tool" of/,
        });
        assert.deepEqual(await made.store.list(), []);
      }
    }
  });

  test("the links of a merged /usr stay the base's", async () => {
    using made = await temporaryStore();
    const data = archive({ path: "./lib", flag: "2", target: "usr/lib" }, { path: "./lib64/ld", body: "ld" });
    using mount = await mounted(made.store, onlyLayer(await importDebs(made.store, deb({ data }))));
    assert.deepEqual([...snapshot(mount.path).keys()], ["", "/usr", "/usr/lib64", "/usr/lib64/ld"]);
  });

  test("packages have a bound for what they replace together: what they say is kept until all are read", async () => {
    using made = await temporaryStore();
    const fields = `Replaces: ${Array.from({ length: 60_000 }, (_, index) => `p${index}`).join(", ")}\n`;
    const packages = ["a", "b"].map((name) =>
      deb({ name: `${name}-tool`, fields, data: archive({ path: `./${name}` }) }),
    );
    await assert.rejects(importDebs(made.store, ...packages), { kind: "TooLarge" });
    await importDebs(made.store, ...packages.slice(1));
  });

  test("makes no base, and takes no package of another processor", async () => {
    using made = await temporaryStore();
    for (const kind of ["base", "snapshot"] as const) {
      await assert.rejects(importBytes(made.store, deb({}), { format: "deb", kind }), {
        kind: "InvalidArgument",
        message: /no base/,
      });
    }
    const foreign = hostArchitecture() === "arm64" ? "amd64" : "arm64";
    await assert.rejects(importDebs(made.store, deb({ architecture: foreign })), {
      message: new RegExp(`for ${foreign}`),
    });
  });

  const data = archive({ path: "./a" });
  const control = archive({ path: "./control", body: "Package: tool\nVersion: 1\nArchitecture: all\n" });
  const version = { name: "debian-binary", body: "2.0\n" };
  const packed = (...members: readonly Member[]) => deb({ data: archive(...members) });
  const HOSTILE: Readonly<Record<string, Buffer>> = {
    "no ar archive": Buffer.from("hello, hello, hello"),
    "an empty archive": ar(),
    "another format": ar({ name: "debian-binary", body: "3.0\n" }),
    "members in the wrong order": ar(version, { name: "data.tar", body: data }, { name: "control.tar", body: control }),
    "no data": ar(version, { name: "control.tar", body: control }),
    "a compression that dpkg gave up": ar(
      version,
      { name: "control.tar", body: control },
      { name: "data.tar.lzma", body: data },
    ),
    "a size that is none": ar(version, { name: "control.tar", body: control, size: "-5" }),
    "a size beyond the end": ar(
      version,
      { name: "control.tar", body: control },
      { name: "data.tar", body: data, size: "9999999999" },
    ),
    "a member that goes on after its archive": ar(
      version,
      { name: "control.tar", body: control },
      { name: "data.tar.gz", body: Buffer.concat([gzipSync(data), Buffer.from("more of it")]) },
    ),
    "a control file that says nothing": ar(
      version,
      { name: "control.tar", body: archive({ path: "./control", body: "hello" }) },
      { name: "data.tar", body: data },
    ),
    "no control file": ar(
      version,
      { name: "control.tar", body: archive({ path: "./md5sums" }) },
      { name: "data.tar", body: data },
    ),
    "a control file of gigabytes": ar(
      version,
      { name: "control.tar", body: archive({ path: "./control", size: 2 ** 33 }) },
      { name: "data.tar", body: data },
    ),
    "a control archive of gigabytes": ar(
      version,
      { name: "control.tar.gz", body: gzipSync(Buffer.alloc(2 ** 27)) },
      { name: "data.tar", body: data },
    ),
    "something after it": Buffer.concat([deb({}), Buffer.from("more")]),
    "a path that leads out": packed({ path: "./../etc/passwd" }),
    "a path through a link": packed({ path: "./usr/x", flag: "2", target: "/etc" }, { path: "./usr/x/passwd" }),
    "a link to what is outside": packed({ path: "./x", flag: "1", target: "../../etc/shadow" }),
    "a device": packed({ path: "./dev/sda", flag: "4", device: [8, 0] }),
    "an owner that no sandbox has": packed({ path: "./x", uid: 100_000 }),
  };
  for (const [what, bytes] of Object.entries(HOSTILE)) {
    test(`refuses ${what}, and leaves nothing`, async () => {
      using made = await temporaryStore();
      await assert.rejects(importDebs(made.store, bytes), { kind: "InvalidArgument" });
      assert.deepEqual([await made.store.list(), readdirSync(join(made.store.dir, "tmp"))], [[], []]);
    });
  }
});

/** Directories whose times say when they were unpacked or merged. */
const MERGED = ["", "/usr", "/usr/bin", "/usr/lib"];

function withoutMerged(found: ReturnType<typeof snapshot>): ReadonlyMap<string, string> {
  return new Map([...found].filter(([path]) => !MERGED.includes(path)));
}
