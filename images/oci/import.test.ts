import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ImportedArtifact } from "../import.ts";
import type { LayerStore } from "../store.ts";
import {
  archive,
  importBytes,
  type Member,
  pax,
  run,
  temporaryDirectory,
  temporaryStore,
} from "../test-support/fixtures.ts";
import { fsck, mounted, snapshot, withMerged } from "../test-support/inspect.ts";
import { type ImageSpec, ociArchive } from "../test-support/oci-archive.ts";
import { hostArchitecture } from "./select.ts";

function importOci(store: LayerStore, bytes: Buffer, reference?: string): Promise<ImportedArtifact> {
  return importBytes(store, bytes, { format: "oci", ...(reference === undefined ? {} : { reference }) });
}

describe("importing an OCI image", () => {
  test("keeps layers apart, turns whiteouts into overlay ones, and reads the config", async () => {
    using made = await temporaryStore();
    const spec: ImageSpec = {
      layers: [
        archive(
          { path: "keep", body: "1" },
          { path: "drop", body: "1" },
          { path: "d/old", body: "1" },
          { path: "e/old", body: "1" },
        ),
        archive(
          { path: ".wh.drop" },
          { path: "d/", flag: "5" },
          { path: "d/.wh..wh..opq" },
          { path: "d/new", body: "2" },
          { path: "e/.wh.old" },
        ),
      ],
      config: { Env: ["PATH=/bin", "X=a=b"], User: "1000:1000", WorkingDir: "/srv" },
    };
    const imported = await importOci(made.store, ociArchive([spec]));
    assert.equal(imported.layers.length, 2);
    assert.deepEqual(imported.config, { env: { PATH: "/bin", X: "a=b" }, user: "1000:1000", workdir: "/srv" });
    for (const digest of imported.layers) fsck(made.store, digest);
    await withMerged(made.store, imported.layers, (path) => {
      assert.deepEqual(readdirSync(path).sort(), ["d", "e", "keep"]);
      assert.deepEqual(readdirSync(join(path, "d")), ["new"]);
      assert.deepEqual(readdirSync(join(path, "e")), []);
    });
  });

  test("lets what a layer has itself win over its own whiteout, in either order", async () => {
    using made = await temporaryStore();
    const lower = archive({ path: "a/old", body: "1" }, { path: "b/old", body: "1" }, { path: "f", body: "old" });
    const members: Member[] = [
      { path: ".wh.a" },
      { path: "a/new", body: "2" },
      { path: "b/new", body: "2" },
      { path: ".wh.b" },
      { path: "f", body: "new" },
      { path: ".wh.f" },
    ];
    const imported = await importOci(made.store, ociArchive([{ layers: [lower, archive(...members)] }]));
    await withMerged(made.store, imported.layers, (path) => {
      assert.deepEqual(readdirSync(join(path, "a")), ["new"]);
      assert.deepEqual(readdirSync(join(path, "b")), ["new"]);
      assert.equal(readFileSync(join(path, "f"), "utf8"), "new");
    });
  });

  test("refuses layers that are encrypted, lie elsewhere or are no archives, by what they are", async () => {
    using made = await temporaryStore();
    const layers = [archive({ path: "f", body: "1" })];
    const types = [
      ["application/vnd.oci.image.layer.v1.tar+gzip+encrypted", /encrypted/],
      ["application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", /lies elsewhere/],
      ["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", /lies elsewhere/],
      ["application/vnd.cncf.helm.chart.content.v1.tar+gzip", /unknown type/],
    ] as const;
    for (const [layerType, message] of types) {
      await assert.rejects(importOci(made.store, ociArchive([{ layers, layerType }])), {
        kind: "InvalidArgument",
        message,
      });
    }
    assert.deepEqual(await made.store.list(), []);
  });

  test("gives directories that an upper layer does not name the attributes of the layer below", async () => {
    using made = await temporaryStore();
    const lower = archive(
      { path: "./", flag: "5", mode: 0o711 },
      { path: "tmp", flag: "5", mode: 0o1777 },
      { path: "home/u", flag: "5", uid: 7 },
    );
    const upper = archive({ path: "tmp/x", body: "x" }, { path: "home/u/f", body: "x" });
    const imported = await importOci(made.store, ociArchive([{ layers: [lower, upper] }]));
    await withMerged(made.store, imported.layers, (path) => {
      assert.equal(statSync(path).mode, 0o40711);
      assert.equal(statSync(join(path, "tmp")).mode, 0o41777);
      assert.equal(statSync(join(path, "home/u")).uid, 7);
    });
  });

  test("picks the image of this host's processor, and the one that is named", async () => {
    using made = await temporaryStore();
    const image = (body: string, more: Partial<ImageSpec>): ImageSpec => ({
      layers: [archive({ path: "f", body })],
      ...more,
    });
    const byPlatform = ociArchive([
      image("other", { architecture: "s390x" }),
      image("ours", { architecture: hostArchitecture() }),
    ]);
    const byName = ociArchive([image("one", { reference: "one" }), image("two", { reference: "two" })]);
    const body = async (imported: ImportedArtifact): Promise<string> => {
      using layer = await mounted(made.store, imported.layers[0] ?? assert.fail("no layer"));
      return readFileSync(join(layer.path, "f"), "utf8");
    };
    assert.equal(await body(await importOci(made.store, byPlatform)), "ours");
    assert.equal(await body(await importOci(made.store, byName, "two")), "two");
    await assert.rejects(importOci(made.store, byName), { kind: "InvalidArgument", hint: /one, two/ });
    await assert.rejects(importOci(made.store, byName, "three"), { kind: "InvalidArgument", hint: /one, two/ });
    const foreign = ociArchive([image("x", { architecture: "s390x" })]);
    await assert.rejects(importOci(made.store, foreign), { kind: "InvalidArgument", hint: /linux\/s390x/ });
  });

  test("takes what docker save writes, links between layers among it", async () => {
    using made = await temporaryStore();
    const layer = archive({ path: "f", body: "docker" });
    const config = {
      os: "linux",
      architecture: hostArchitecture(),
      config: { User: "root" },
      rootfs: { diff_ids: [sha(layer)] },
    };
    const bytes = archive(
      { path: "aa/layer.tar", body: layer },
      { path: "bb/layer.tar", flag: "2", target: "../aa/layer.tar" },
      { path: "cc.json", body: JSON.stringify(config) },
      {
        path: "manifest.json",
        body: JSON.stringify([{ Config: "cc.json", RepoTags: ["x:1"], Layers: ["bb/layer.tar"] }]),
      },
    );
    assert.equal((await importOci(made.store, bytes)).config.user, "root");
    await assert.rejects(importOci(made.store, bytes, "y:2"), { kind: "InvalidArgument", hint: /x:1/ });
  });

  test("takes what umoci and skopeo make, and shows the tree that umoci unpacks", async () => {
    using work = temporaryDirectory();
    using made = await temporaryStore();
    const at = (name: string): string => join(work.path, name);
    umociImage(at);
    run("tar", "-C", at("layout"), "-cf", at("layout.tar"), ".");
    run(
      "skopeo",
      "copy",
      "--insecure-policy",
      `oci:${at("layout")}:test`,
      `docker-archive:${at("docker.tar")}:test:latest`,
    );
    run("skopeo", "copy", "--insecure-policy", `oci:${at("layout")}:test`, `oci-archive:${at("oci.tar")}:test`);
    run("umoci", "unpack", "--image", `${at("layout")}:test`, at("again"));
    const expected = snapshot(at("again/rootfs"));
    for (const name of ["layout.tar", "docker.tar", "oci.tar"]) {
      const imported = await importOci(made.store, readFileSync(at(name)));
      assert.equal(imported.config.env.GREETING, "hello");
      await withMerged(made.store, imported.layers, (path) =>
        assert.deepEqual(comparable(snapshot(path)), comparable(expected)),
      );
    }
  });
});

describe("importing a hostile or damaged image is refused and leaves nothing:", () => {
  const layer = archive({ path: "f", body: "x" });
  const tamper = (pattern: RegExp, change: (body: string) => string) => (members: Member[]) =>
    members.map((entry) => (pattern.test(String(entry.path)) ? { ...entry, body: change(String(entry.body)) } : entry));
  const refused: readonly (readonly [what: string, bytes: Buffer, message: RegExp])[] = [
    ["a plain file tree", archive({ path: "etc/passwd" }), /neither index.json nor manifest.json/],
    [
      "an index that is not JSON",
      ociArchive(
        [{ layers: [layer] }],
        tamper(/index.json/, () => "{"),
      ),
      /not JSON/,
    ],
    [
      "an index that is a list",
      ociArchive(
        [{ layers: [layer] }],
        tamper(/index.json/, () => "[]"),
      ),
      /no JSON object/,
    ],
    [
      "an index of the wrong shape",
      ociArchive(
        [{ layers: [layer] }],
        tamper(/index.json/, () => '{"manifests":5}'),
      ),
      /no valid manifests/,
    ],
    ["a missing blob", ociArchive([{ layers: [layer] }], (members) => members.slice(0, 3)), /lacks/],
    [
      "a layer whose content is another",
      ociArchive([{ layers: [layer], diffIds: [sha(archive({ path: "g" }))] }]),
      /does not have the digest/,
    ],
    ["a config that names no layers", ociArchive([{ layers: [layer], diffIds: [] }]), /does not name its layers/],
    ["an image without layers", ociArchive([{ layers: [] }]), /has no layers/],
    [
      "a blob path that leads out",
      ociArchive(
        [{ layers: [layer] }],
        tamper(/index.json/, (body) => body.replace(/sha256:[0-9a-f]{64}/, "sha256:../../x")),
      ),
      /no SHA-256 digest/,
    ],
    ["a member that leads out", archive({ path: "../index.json" }), /leads out/],
    ["a layer with a path that leads out", ociArchive([{ layers: [archive({ path: "../x" })] }]), /leads out/],
    ["a whiteout that leads out", ociArchive([{ layers: [archive({ path: "a/../../.wh.x" })] }]), /leads out/],
    [
      "a file beneath a link of a lower layer",
      ociArchive([{ layers: [archive({ path: "l", flag: "2", target: "/etc" }), archive(pax({}), { path: "l/f" })] }]),
      /beneath "l"/,
    ],
  ];
  for (const [what, bytes, message] of refused) {
    test(what, async () => {
      using made = await temporaryStore();
      await assert.rejects(importOci(made.store, bytes), { kind: "InvalidArgument", message });
      assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
    });
  }

  test("a damaged blob", async () => {
    using made = await temporaryStore();
    const bytes = ociArchive([{ layers: [layer] }], (members) =>
      members.map((entry) =>
        String(entry.path).startsWith("blobs")
          ? { ...entry, body: Buffer.concat([Buffer.from(entry.body ?? ""), Buffer.from(" ")]) }
          : entry,
      ),
    );
    await assert.rejects(importOci(made.store, bytes), { kind: "InvalidArgument", message: /is damaged/ });
  });
});

function sha(bytes: Buffer): string {
  return `sha256:${run("sh", "-c", `printf %s ${bytes.toString("base64")} | base64 -d | sha256sum`).slice(0, 64)}`;
}

/** Overlays give directories other link counts, and directories of umoci other times, than one file system has. */
function comparable(tree: ReadonlyMap<string, string>): readonly string[] {
  return [...tree].map(([path, line]) => {
    const fields = line.split(" ");
    return fields[0]?.startsWith("4") === true ? `${path} ${fields[0]} ${fields[1]}` : `${path} ${line}`;
  });
}

/** Two layers by an independent tool: the second removes, replaces and adds. */
function umociImage(at: (name: string) => string): void {
  run("umoci", "init", "--layout", at("layout"));
  run("umoci", "new", "--image", `${at("layout")}:test`);
  run("umoci", "unpack", "--image", `${at("layout")}:test`, at("bundle"));
  const root = at("bundle/rootfs");
  mkdirSync(join(root, "dir"));
  for (const name of ["one", "two", "dir/three"]) writeFileSync(join(root, name), name);
  run("ln", join(root, "one"), join(root, "one-again"));
  run("ln", "-s", "one", join(root, "link"));
  run("umoci", "repack", "--refresh-bundle", "--image", `${at("layout")}:test`, at("bundle"));
  rmSync(join(root, "two"));
  rmSync(join(root, "dir"), { recursive: true });
  writeFileSync(join(root, "dir"), "now a file");
  writeFileSync(join(root, "four"), "four");
  run("umoci", "repack", "--image", `${at("layout")}:test`, at("bundle"));
  run("umoci", "config", "--image", `${at("layout")}:test`, "--config.env", "GREETING=hello");
}
