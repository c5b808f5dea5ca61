import assert from "node:assert/strict";
import { createReadStream, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { unmount } from "#host/sys/mount.ts";
import { openArchive } from "#images/export/export.ts";
import { importArtifact } from "#images/import.ts";
import type { LayerStore } from "#images/store.ts";
import { run, temporaryDirectory, temporaryStore } from "#images/test-support/fixtures.ts";
import { fsck, mounted, type Snapshot, snapshot, withMerged } from "#images/test-support/inspect.ts";
import { debianTar, whyNoDebian } from "../support/debian.ts";

const why = whyNoDebian();

describe("a full Debian image, inode by inode", { skip: why ?? false, timeout: 600_000 }, () => {
  using work = new DisposableStack();
  const place = work.use(temporaryDirectory()).path;
  const held = work.move();
  const at = (name: string): string => join(place, name);
  test.after(() => held.dispose());
  let root = "";
  before(async () => {
    root = await debianTar("tools");
    mkdirSync(at("tar"));
    run("tar", "-C", at("tar"), "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", root);
    run("umoci", "init", "--layout", at("layout"));
    run("umoci", "new", "--image", `${at("layout")}:test`);
    run("umoci", "raw", "add-layer", "--image", `${at("layout")}:test`, root);
  });

  test("its layer shows what GNU tar unpacks and what mkfs.erofs makes of that", async () => {
    using made = await temporaryStore();
    const { layers } = await importFile(made.store, root, "tar");
    const digest = layers[0] ?? assert.fail("no layer");
    await fsck(made.store, digest);
    using ours = await mounted(made.store, digest);
    const found = snapshot(ours.path);
    assertSame(found, withoutDevices(snapshot(at("tar"))), everything);
    assert.ok(
      [...found.values()].some((line) => line.includes("security.capability=")),
      "no file has a capability",
    );
    run("mkfs.erofs", at("peer.erofs"), at("tar"));
    using peer = mountedImage(at("peer.erofs"));
    assertSame(found, withoutDevices(snapshot(peer.path)), everything);
  });

  test("as an OCI image with deletions it shows what umoci unpacks, and is the same after an export", async () => {
    using made = await temporaryStore();
    const image = `${at("layout")}:test`;
    run("umoci", "unpack", "--image", image, at("bundle"));
    change(at("bundle/rootfs"));
    run("umoci", "repack", "--image", image, at("bundle"));
    run("umoci", "unpack", "--image", image, at("again"));
    run("tar", "-C", at("layout"), "-cf", at("layout.tar"), ".");
    const { layers } = await importFile(made.store, at("layout.tar"), "oci");
    assert.equal(layers.length, 2);
    const expected = withoutDevices(snapshot(at("again/rootfs")));
    await withMerged(made.store, layers, (path) => assertSame(snapshot(path), expected, exceptDirectories));
    await using archive = await openArchive({
      ...{
        store: made.store,
        objects: undefined,
        layers,
        config: { env: {}, user: undefined, workdir: undefined },
        reference: "test",
      },
      ...{ compression: "none", signal: AbortSignal.timeout(300_000), progress: () => undefined },
    });
    const again = await importArtifact({ store: made.store, source: archive.bytes, format: "oci" });
    await withMerged(made.store, again.layers, (path) => assertSame(snapshot(path), expected, exceptDirectories));
    assert.equal(again.layers[0], layers[0]);
  });
});

function importFile(store: LayerStore, file: string, format: "tar" | "oci") {
  return importArtifact({ store, source: createReadStream(file, { highWaterMark: 2 ** 18 }), format });
}

/** Everything that makes whiteouts and opaque directories. */
function change(root: string): void {
  rmSync(join(root, "usr/share/doc"), { recursive: true });
  rmSync(join(root, "usr/share/man"), { recursive: true });
  mkdirSync(join(root, "usr/share/man/new"), { recursive: true });
  rmSync(join(root, "etc/skel"), { recursive: true });
  writeFileSync(join(root, "etc/skel"), "a file now");
  rmSync(join(root, "etc/hostname"));
  writeFileSync(join(root, "etc/motd"), "changed");
}

function everything(_path: string, line: string): string {
  return line;
}

/** An overlay gives directories other link counts, and umoci gives them other times. */
function exceptDirectories(_path: string, line: string): string {
  const [mode = "", owner] = line.split(" ");
  return mode.startsWith("4") ? `${mode} ${owner}` : line;
}

function assertSame(found: Snapshot, expected: Snapshot, seen: (path: string, line: string) => string): void {
  for (const [path, line] of expected) {
    assert.equal(seen(path, found.get(path) ?? "missing"), seen(path, line), JSON.stringify(path));
  }
  assert.equal(found.size, expected.size);
  assert.ok(found.size > 5_000, `only ${found.size} inodes`);
}

/** A base is imported without them: a sandbox brings its own /dev. */
function withoutDevices(tree: Snapshot): Snapshot {
  return new Map([...tree].filter(([, line]) => !/^(2|6)\d{4} /.test(line)));
}

function mountedImage(file: string): Disposable & { readonly path: string } {
  const directory = temporaryDirectory();
  run("mount", "-t", "erofs", "-o", "ro,loop", file, directory.path);
  return {
    path: directory.path,
    [Symbol.dispose]() {
      unmount(directory.path);
      directory[Symbol.dispose]();
    },
  };
}
