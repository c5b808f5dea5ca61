import assert from "node:assert/strict";
import { lutimesSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { LayerDigest } from "#core/sandbox.ts";
import { hexOf } from "../digest.ts";
import { EMPTY_CONFIG, importArtifact } from "../import.ts";
import { importFrom } from "../sources/import-from.ts";
import { directoryStore } from "../store/directory.ts";
import { sharedLayers } from "../store/test-support/sharing.ts";
import type { LayerStore } from "../store.ts";
import { archive, importBytes, run, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { importDirectory } from "../test-support/import-directory.ts";
import { mounted, snapshot } from "../test-support/inspect.ts";
import { makeNastyTree } from "../test-support/nasty-tree.ts";
import { ociArchive } from "../test-support/oci-archive.ts";
import { startRegistry } from "../test-support/registry.ts";
import { exportToRegistry, openArchive } from "./export.ts";
import type { Compression, LayoutOptions } from "./layout.ts";

const NO_SETTINGS = { authFile: undefined, registriesFile: undefined };
const { signal } = new AbortController();

function options(store: LayerStore, layers: readonly LayerDigest[], more: Partial<LayoutOptions> = {}): LayoutOptions {
  const fixed = { reference: "test", compression: "gzip", signal, progress: () => undefined } as const;
  return { store, objects: undefined, layers, config: EMPTY_CONFIG, ...fixed, ...more };
}

async function exported(given: LayoutOptions): Promise<Buffer> {
  await using archive = await openArchive(given);
  return Buffer.concat(await Array.fromAsync(archive.bytes));
}

/** A layer of all that a tree can hold, but for a whiteout: its own times and mode mean nothing and are not exported. */
async function nasty(...stores: readonly LayerStore[]): Promise<readonly LayerDigest[]> {
  using source = temporaryDirectory();
  makeNastyTree(source.path);
  run("rm", join(source.path, "whiteout"));
  lutimesSync(source.path, 5, 5);
  const made = await Promise.all(stores.map((store) => importDirectory(source.path, { store })));
  return made[0]?.layers ?? [];
}

describe("exporting an artifact", () => {
  for (const compression of ["gzip", "zstd", "none"] as const satisfies readonly Compression[]) {
    test(`gives an archive (${compression}) whose import is the very same layer, whatever the tree holds`, async () => {
      using made = await temporaryStore();
      const layers = await nasty(made.store);
      const config = {
        env: { A: "b=c", PATH: "/bin" },
        user: "7:8",
        workdir: "/srv",
        image: { labels: { a: "b" }, command: ["sh"], entrypoint: ["env"] },
      };
      const bytes = await exported(options(made.store, layers, { config, compression }));
      const source = ReadableStream.from([bytes]);
      const again = await importArtifact({ store: made.store, source, format: "oci" });
      assert.deepEqual(again.layers, layers);
      assert.deepEqual(again.config, config);
      assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
    });
  }

  test("gives the same bytes each time, from any store", async () => {
    using one = await temporaryStore();
    using two = await temporaryStore();
    const layers = await nasty(one.store, two.store);
    const bytes = await exported(options(one.store, layers));
    assert.ok(bytes.equals(await exported(options(two.store, layers))));
  });

  test("gives the same bytes when the data lies in a store alone", async () => {
    using made = await temporaryStore();
    using directory = temporaryDirectory();
    await using objects = directoryStore(directory.path);
    const body = Buffer.concat(Array.from({ length: 40 }, (_, at) => Buffer.alloc(30_000, `part ${at} `)));
    const { layers } = await importBytes(made.store, archive({ path: "large", body }, { path: "small", body: "text" }));
    const bytes = await exported(options(made.store, layers));
    await sharedLayers(made.store, objects).push(layers, AbortSignal.timeout(60_000));
    for (const blob of await made.store.blobs.list())
      rmSync(join(made.store.dir, "blobs", hexOf(blob)), { recursive: true });
    assert.ok(bytes.equals(await exported(options(made.store, layers, { objects }))));
  });

  test("turns an overlay's whiteouts and opaque directories back into OCI's", async () => {
    using made = await temporaryStore();
    const lower = archive({ path: "drop", body: "1" }, { path: "d/old", body: "1" });
    const upper = archive(
      { path: ".wh.drop" },
      { path: "d/", flag: "5" },
      { path: "d/.wh..wh..opq" },
      { path: "d/new", body: "2" },
    );
    const { layers } = await importBytes(made.store, ociArchive([{ layers: [lower, upper] }]), { format: "oci" });
    using work = temporaryDirectory();
    const bytes = await exported(options(made.store, layers, { compression: "none" }));
    writeFileSync(join(work.path, "image.tar"), bytes);
    mkdirSync(join(work.path, "layout"));
    run("tar", "-C", join(work.path, "layout"), "-xf", join(work.path, "image.tar"));
    run("umoci", "unpack", "--image", `${work.path}/layout:test`, `${work.path}/bundle`);
    assert.deepEqual(readdirSync(`${work.path}/bundle/rootfs`), ["d"]);
    assert.deepEqual(readdirSync(`${work.path}/bundle/rootfs/d`), ["new"]);
    const again = await importBytes(made.store, bytes, { format: "oci" });
    assert.deepEqual(again.layers, layers);
  });

  test("gives what skopeo takes and umoci unpacks to the same tree", async () => {
    using made = await temporaryStore();
    using source = temporaryDirectory();
    using work = temporaryDirectory();
    makeNastyTree(source.path);
    run("rm", "-rf", join(source.path, "whiteout"), join(source.path, "opaque"));
    const { layers } = await importDirectory(source.path, { store: made.store });
    const config = { env: { GREETING: "hello" }, user: "1000", workdir: "/srv" };
    writeFileSync(join(work.path, "image.tar"), await exported(options(made.store, layers, { config })));
    const seen = JSON.parse(run("skopeo", "inspect", "--config", `oci-archive:${work.path}/image.tar:test`));
    assert.deepEqual(seen.config, { Env: ["GREETING=hello"], User: "1000", WorkingDir: "/srv" });
    run(
      "skopeo",
      "copy",
      "--insecure-policy",
      `oci-archive:${work.path}/image.tar:test`,
      `oci:${work.path}/layout:test`,
    );
    run("umoci", "unpack", "--keep-dirlinks", "--image", `${work.path}/layout:test`, `${work.path}/bundle`);
    using layer = await mounted(made.store, layers[0] ?? assert.fail("no layer"));
    const [expected, found] = [snapshot(layer.path), snapshot(`${work.path}/bundle/rootfs`)];
    // Go's reader of tar archives takes an attribute without a value for one that is removed.
    const seenByGo = (line: string) => line.replace("user.key0=,", "");
    for (const [path, line] of expected) assert.equal(found.get(path), seenByGo(line), JSON.stringify(path));
    assert.equal(found.size, expected.size);
  });

  test("puts it into a registry, from which it comes back as the same layer", async () => {
    await using registry = await startRegistry({ locked: true });
    using made = await temporaryStore();
    const layers = await nasty(made.store);
    const image = `${registry.host}/team/nasty:v1`;
    const given = { ...options(made.store, layers), registries: NO_SETTINGS };
    await assert.rejects(exportToRegistry({ image, insecure: true }, given), { kind: "PermissionDenied" });
    const credentials = { username: "user", password: "secret" };
    await exportToRegistry({ image, insecure: true, credentials }, given);
    const source = { type: "registry", image, insecure: true, credentials } as const;
    const context = {
      store: made.store,
      kind: "base",
      registries: NO_SETTINGS,
      signal,
      progress: () => undefined,
    } as const;
    assert.deepEqual((await importFrom(source, context)).layers, layers);
    const digested = `${registry.host}/x@sha256:${"0".repeat(64)}`;
    await assert.rejects(exportToRegistry({ image: digested, insecure: true, credentials }, given), {
      kind: "InvalidArgument",
    });
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("a name that OCI reads as a deletion is refused, and nothing is left of the export", async () => {
    using made = await temporaryStore();
    const { layers } = await importArtifact({
      store: made.store,
      source: (async function* () {
        yield archive({ path: "d/.wh.x", body: "1" });
      })(),
      format: "tar",
    });
    await assert.rejects(exported(options(made.store, layers)), { kind: "InvalidArgument", message: /d\/\.wh\.x/ });
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("an export that is given up leaves nothing", async () => {
    using made = await temporaryStore();
    const layers = await nasty(made.store);
    const giving = new AbortController();
    const progress = () => giving.abort(new Error("given up"));
    await assert.rejects(exported(options(made.store, layers, { signal: giving.signal, progress })), /given up/);
    {
      await using begun = await openArchive(options(made.store, layers));
      for await (const piece of begun.bytes) {
        assert.ok(piece.length > 0);
        break;
      }
    }
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });
});
