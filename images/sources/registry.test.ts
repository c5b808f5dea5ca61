import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { hostArchitecture } from "../oci/select.ts";
import type { LayerStore } from "../store.ts";
import { archive, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { fsck, mounted } from "../test-support/inspect.ts";
import { digestOf, type ImageSpec, ociArchive } from "../test-support/oci-archive.ts";
import { type Answer, type Answers, startHostileRegistry, startRegistry } from "../test-support/registry.ts";
import { importFrom } from "./import-from.ts";
import type { RegistrySource, SourceContext } from "./source.ts";

const NO_SETTINGS = { authFile: undefined, registriesFile: undefined };

function fetchImage(
  store: LayerStore,
  source: Omit<RegistrySource, "type">,
  context: Partial<SourceContext> = {},
): ReturnType<typeof importFrom> {
  const { signal } = new AbortController();
  const given = {
    store,
    kind: "base",
    registries: NO_SETTINGS,
    signal,
    progress: () => undefined,
    ...context,
  } as const;
  return importFrom({ type: "registry", insecure: true, ...source }, given);
}

function image(body: string, more: Partial<ImageSpec> = {}): ImageSpec {
  return { layers: [archive({ path: "f", body })], ...more };
}

/** What is left of an import that failed. */
function assertNothingLeft(store: LayerStore): void {
  assert.deepEqual(readdirSync(join(store.dir, "layers")), []);
  assert.deepEqual(readdirSync(join(store.dir, "tmp")), []);
}

describe("importing from a registry", () => {
  test("fetches an image of several layers, keeps its config, and says which digest it was", async () => {
    await using registry = await startRegistry();
    using made = await temporaryStore();
    const layers = [archive({ path: "a", body: "1" }, { path: "b", body: "1" }), archive({ path: ".wh.a" })];
    registry.push(ociArchive([{ layers, config: { Env: ["A=b"], User: "7" } }]), "team/app:v1");
    const lines: string[] = [];
    const imported = await fetchImage(
      made.store,
      { image: `${registry.host}/team/app:v1` },
      { progress: (line) => lines.push(line) },
    );
    assert.equal(imported.layers.length, 2);
    assert.deepEqual(imported.config, { env: { A: "b" }, user: "7", workdir: undefined });
    assert.match(imported.provenance, new RegExp(`^docker://${registry.host}/team/app:v1@sha256:[0-9a-f]{64}$`));
    assert.match(lines.join("\n"), /Copying blob[\s\S]*layer 2 of 2/);
    for (const digest of imported.layers) await fsck(made.store, digest);
    const [, digest] = imported.provenance.split("@");
    const again = await fetchImage(made.store, { image: `${registry.host}/team/app@${digest}` });
    assert.deepEqual(again.layers, imported.layers);
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("takes the image for this host's processor out of several, and refuses one that has none", async () => {
    using made = await temporaryStore();
    const ours = image("ours", { architecture: hostArchitecture() });
    const others = [image("s390x", { architecture: "s390x" }), image("riscv64", { architecture: "riscv64" })];
    await using several = await startHostileRegistry(index([...others, ours]));
    const imported = await fetchImage(made.store, { image: `${several.host}/x` });
    using layer = await mounted(made.store, imported.layers[0] ?? assert.fail("no layer"));
    assert.equal(readFileSync(join(layer.path, "f"), "utf8"), "ours");
    await using none = await startHostileRegistry(index(others));
    await assert.rejects(fetchImage(made.store, { image: `${none.host}/x` }), {
      kind: "InvalidArgument",
      message: /no image found/i,
    });
  });

  test("gets in with credentials alone, from the call or from the node's file, and shows them to nobody", async () => {
    await using registry = await startRegistry({ locked: true });
    using made = await temporaryStore();
    using directory = temporaryDirectory();
    registry.push(ociArchive([image("x")]), "private:latest");
    const name = `${registry.host}/private`;
    await assert.rejects(fetchImage(made.store, { image: name }), { kind: "PermissionDenied" });
    const wrong = { username: "user", password: "not-the-one" };
    await assert.rejects(fetchImage(made.store, { image: name, credentials: wrong }), (error: Error) => {
      assert.ok(!JSON.stringify(error).includes("not-the-one") && !error.message.includes("not-the-one"));
      return true;
    });
    assertNothingLeft(made.store);
    const credentials = { username: "user", password: "secret" };
    const imported = await fetchImage(made.store, { image: name, credentials });
    const authFile = join(directory.path, "auth.json");
    writeFileSync(
      authFile,
      JSON.stringify({ auths: { [registry.host]: { auth: Buffer.from("user:secret").toString("base64") } } }),
    );
    const registries = { authFile, registriesFile: undefined };
    assert.deepEqual((await fetchImage(made.store, { image: name }, { registries })).layers, imported.layers);
  });

  test("asks a mirror that the node's file names first", async () => {
    await using mirror = await startRegistry();
    using made = await temporaryStore();
    using directory = temporaryDirectory();
    mirror.push(ociArchive([image("x")]), "team/app:latest");
    const registriesFile = join(directory.path, "registries.conf");
    writeFileSync(
      registriesFile,
      `[[registry]]\nlocation = "registry.invalid"\n[[registry.mirror]]\nlocation = "${mirror.host}"\ninsecure = true\n`,
    );
    const registries = { authFile: undefined, registriesFile };
    const source = { image: "registry.invalid/team/app", insecure: false };
    const imported = await fetchImage(made.store, source, { registries });
    assert.match(imported.provenance, /^docker:\/\/registry\.invalid\/team\/app@/);
  });

  test("refuses a certificate that nobody vouches for, until it is trusted or said not to matter", async () => {
    await using registry = await startRegistry({ tls: true });
    using made = await temporaryStore();
    registry.push(ociArchive([image("x")]), "app:latest");
    const name = `${registry.host}/app`;
    await assert.rejects(fetchImage(made.store, { image: name, insecure: false }), { kind: "FailedPrecondition" });
    await fetchImage(made.store, { image: name });
    const before = process.env.SSL_CERT_FILE;
    process.env.SSL_CERT_FILE = registry.certificate;
    try {
      await fetchImage(made.store, { image: name, insecure: false });
    } finally {
      if (before === undefined) delete process.env.SSL_CERT_FILE;
      else process.env.SSL_CERT_FILE = before;
    }
  });

  test("two imports of one image at a time share its layers", async () => {
    await using registry = await startRegistry();
    using made = await temporaryStore();
    registry.push(ociArchive([image("x")]), "app:latest");
    const both = [0, 1].map(() => fetchImage(made.store, { image: `${registry.host}/app` }));
    const [one, two] = await Promise.all(both);
    assert.deepEqual(one?.layers, two?.layers);
    assert.equal(readdirSync(join(made.store.dir, "layers")).length, 1);
  });

  test("an import that is given up in the middle leaves nothing, and a later one is whole", async () => {
    using made = await temporaryStore();
    const { answers, layer } = single(image("x"));
    await using stalling = await startHostileRegistry(
      new Map<string, Answer>([...answers, [layer, { type: "x", body: "stalls" }]]),
    );
    const giving = new AbortController();
    const progress = (line: string) => void (line.startsWith("Copying blob") && giving.abort(new Error("given up")));
    await assert.rejects(
      fetchImage(made.store, { image: `${stalling.host}/x` }, { signal: giving.signal, progress }),
      /given up/,
    );
    assertNothingLeft(made.store);
    await using whole = await startHostileRegistry(answers);
    assert.equal((await fetchImage(made.store, { image: `${whole.host}/x` })).layers.length, 1);
  });

  for (const [what, change, kind, message] of hostilities()) {
    test(`a registry with ${what} gives a typed error and leaves nothing`, async () => {
      using made = await temporaryStore();
      const { answers, layer, manifest } = single(image("x"));
      await using hostile = await startHostileRegistry(change(new Map(answers), { layer, manifest }));
      await assert.rejects(fetchImage(made.store, { image: `${hostile.host}/x` }), { kind, message });
      assertNothingLeft(made.store);
    });
  }

  test("a name that is no image's, an unknown image and a server that is not there are told apart", async () => {
    await using registry = await startRegistry();
    using made = await temporaryStore();
    for (const bad of ["", "-x", "UPPER", "a b", "x;id", "$(id)", "x:", "x@sha256:12", "../x", `${"x".repeat(600)}`]) {
      await assert.rejects(fetchImage(made.store, { image: bad }), { kind: "InvalidArgument" }, bad);
    }
    await assert.rejects(fetchImage(made.store, { image: `${registry.host}/nothing` }), { kind: "NotFound" });
    await assert.rejects(fetchImage(made.store, { image: "127.0.0.1:1/x" }), { kind: "Unavailable" });
    assertNothingLeft(made.store);
  });
});

type Change = (answers: Map<string, Answer>, at: { layer: string; manifest: string }) => Answers;

function hostilities(): readonly (readonly [what: string, change: Change, kind: string, message: RegExp])[] {
  const json = (value: unknown, type: string) => ({ type, body: Buffer.from(JSON.stringify(value)) });
  return [
    [
      "a layer of other bytes than its digest",
      (a, { layer }) => a.set(layer, { type: "x", body: Buffer.from("other") }),
      "InvalidArgument",
      /match|size/i,
    ],
    [
      "a layer that is missing",
      (a, { layer }) => new Map([...a].filter(([path]) => path !== layer)),
      "NotFound",
      /404|not found|unknown/i,
    ],
    [
      "a manifest of schema 1",
      (a, { manifest }) =>
        a.set(
          manifest,
          json({ schemaVersion: 1, fsLayers: [] }, "application/vnd.docker.distribution.manifest.v1+json"),
        ),
      "InvalidArgument",
      /schema 1/,
    ],
    [
      "a manifest of an unknown type",
      (a, { manifest }) =>
        a.set(
          manifest,
          json({ schemaVersion: 2, mediaType: "application/vnd.example+json" }, "application/vnd.example+json"),
        ),
      "InvalidArgument",
      /vnd\.example/,
    ],
    [
      "a manifest that is no JSON",
      (a, { manifest }) =>
        a.set(manifest, { type: "application/vnd.oci.image.manifest.v1+json", body: Buffer.from("<html>") }),
      "InvalidArgument",
      /JSON/,
    ],
    [
      "a manifest without an end",
      (a, { manifest }) => a.set(manifest, { type: "application/vnd.oci.image.manifest.v1+json", body: "endless" }),
      "TooLarge",
      /more than|maximum/i,
    ],
  ];
}

/** What a registry answers for `x:latest`, and where its parts lie. */
function single(spec: ImageSpec) {
  const answers = new Map<string, { type: string; body: Buffer }>();
  const { manifest, layer } = addImage(answers, spec);
  answers.set("/v2/x/manifests/latest", { type: OCI_MANIFEST, body: manifest });
  return { answers, layer, manifest: "/v2/x/manifests/latest" };
}

function index(specs: readonly ImageSpec[]): Answers {
  const answers = new Map<string, { type: string; body: Buffer }>();
  const manifests = specs.map((spec) => {
    const { manifest } = addImage(answers, spec);
    const platform = { os: "linux", architecture: spec.architecture };
    return { mediaType: OCI_MANIFEST, digest: digestOf(manifest), size: manifest.length, platform };
  });
  const type = "application/vnd.oci.image.index.v1+json";
  const body = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: type, manifests }));
  answers.set("/v2/x/manifests/latest", { type, body });
  answers.set(`/v2/x/manifests/${digestOf(body)}`, { type, body });
  return answers;
}

const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";

function addImage(answers: Map<string, { type: string; body: Buffer }>, { layers, architecture }: ImageSpec) {
  const add = (body: Buffer) => {
    answers.set(`/v2/x/blobs/${digestOf(body)}`, { type: "application/octet-stream", body });
    return { digest: digestOf(body), size: body.length };
  };
  const platform = { os: "linux", architecture: architecture ?? hostArchitecture() };
  const config = { ...platform, config: {}, rootfs: { type: "layers", diff_ids: layers.map(digestOf) } };
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: OCI_MANIFEST,
      config: { mediaType: "application/vnd.oci.image.config.v1+json", ...add(Buffer.from(JSON.stringify(config))) },
      layers: layers.map((layer) => ({ mediaType: "application/vnd.oci.image.layer.v1.tar", ...add(layer) })),
    }),
  );
  answers.set(`/v2/x/manifests/${digestOf(manifest)}`, { type: OCI_MANIFEST, body: manifest });
  return { manifest, layer: `/v2/x/blobs/${digestOf(layers[0] ?? Buffer.alloc(0))}` };
}
