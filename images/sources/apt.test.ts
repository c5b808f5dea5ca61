import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { hostSuite } from "#host/debian-sources.ts";
import { fetchPackages } from "#host/fetch/apt.ts";
import { hostArchitecture } from "../oci/select.ts";
import type { LayerStore } from "../store.ts";
import { unpackWithDpkg } from "../test-support/deb.ts";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { fsck, mounted, snapshot } from "../test-support/inspect.ts";
import { importFrom } from "./import-from.ts";

const reason = existsSync("/usr/bin/apt-get") ? false : "this host has no apt";
/** Small, with libraries of its own and others that every system has. */
const PACKAGE = "jq";

function importing(store: LayerStore, packages: readonly string[], more: { suite?: string; kind?: "base" } = {}) {
  const { suite, kind = "toolkit" } = more;
  const registries = { authFile: undefined, registriesFile: undefined };
  const { signal } = new AbortController();
  return importFrom({ type: "apt", packages, suite }, { store, kind, registries, signal, progress: () => undefined });
}

function assertNothingLeft(store: LayerStore): void {
  for (const name of ["layers", "blobs", "tmp"]) assert.deepEqual(readdirSync(join(store.dir, name)), [], name);
}

describe("importing packages of Debian's archive", { skip: reason }, () => {
  test("brings them with what they need and a minimal system lacks, as dpkg unpacks it", async () => {
    using made = await temporaryStore();
    using work = temporaryDirectory();
    const [dir, unpacked] = [join(work.path, "apt"), join(work.path, "unpacked")];
    for (const path of [dir, unpacked]) mkdirSync(path);
    const { packages, suite } = await fetchPackages({
      ...{ packages: [PACKAGE], architecture: hostArchitecture(), dir, maxFileBytes: 2 ** 30 },
      ...{ signal: new AbortController().signal, progress: () => undefined },
    });
    const names = packages.map(({ name }) => name);
    assert.equal(suite, hostSuite());
    assert.ok(names.includes(PACKAGE) && names.length > 1, `${names}`);
    assert.ok(!names.includes("libc6") && !names.includes("base-files"), `${names}`);
    unpackWithDpkg(
      unpacked,
      packages.map(({ file }) => file),
    );

    const imported = await importing(made.store, [PACKAGE]);
    const version = packages.find(({ name }) => name === PACKAGE)?.version;
    assert.equal(imported.provenance, `apt ${suite} ${PACKAGE}=${version}`);
    const [layer = assert.fail("no layer"), ...more] = imported.layers;
    assert.deepEqual(more, []);
    await fsck(made.store, layer);
    using mount = await mounted(made.store, layer);
    // Directories of several packages have the time of the last one, and the order is apt's.
    assert.deepEqual(filesOf(mount.path), filesOf(unpacked));
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("names a package that there is not, and leaves nothing", async () => {
    using made = await temporaryStore();
    await assert.rejects(importing(made.store, [PACKAGE, "no-such-package-anywhere"]), {
      kind: "InvalidArgument",
      message: /no-such-package-anywhere/,
    });
    assertNothingLeft(made.store);
  });

  test("refuses names that are none, and a base, before it asks anybody", async () => {
    using made = await temporaryStore();
    for (const name of ["-o", "a b", "A", "a=1", "?essential", "../x", "a,b"]) {
      await assert.rejects(importing(made.store, [name]), {
        kind: "InvalidArgument",
        message: /is not the name of a package/,
      });
    }
    await assert.rejects(importing(made.store, [PACKAGE], { suite: "../etc" }), { kind: "InvalidArgument" });
    await assert.rejects(importing(made.store, [PACKAGE], { kind: "base" }), {
      kind: "InvalidArgument",
      message: /no base/,
    });
    assertNothingLeft(made.store);
  });
});

function filesOf(directory: string): readonly (readonly [string, string])[] {
  return [...snapshot(directory)].map(([path, seen]) => [path, seen.startsWith("4") ? "directory" : seen] as const);
}
