import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind, ImageConfig } from "#core/sandbox.ts";
import { Catalogue, MemoryArtifactTable, type NewArtifact, SHARED_PROJECT } from "./catalogue.ts";
import { parseLayerDigest } from "./digest.ts";
import { compose } from "./layers/compose.ts";
import { MAX_LAYERS } from "./layers/stack.ts";
import { formatReference, parseReference } from "./reference.ts";

const layer = (index: number) => parseLayerDigest(`sha256:${index.toString(16).padStart(64, "0")}`);

function artifact(kind: ArtifactKind, layers: readonly number[], config: Partial<ImageConfig> = {}): NewArtifact {
  return {
    kind,
    layers: layers.map(layer),
    config: { env: {}, user: undefined, workdir: undefined, ...config },
    sizeBytes: 1,
    provenance: "a test",
  };
}

function part(kind: ArtifactKind, layers: readonly number[], config: Partial<ImageConfig> = {}) {
  return { name: `the-${kind}`, tag: "latest", ...artifact(kind, layers, config) };
}

describe("a reference", () => {
  test("without a tag means latest", () => {
    assert.deepEqual(parseReference("debian"), { name: "debian", tag: "latest" });
    assert.equal(formatReference(parseReference("team/tool.kit:v1.2_x")), "team/tool.kit:v1.2_x");
  });

  test("that could be a path, an option or worse is refused", () => {
    const bad = [
      "",
      "..",
      "../x",
      "/abs",
      "a//b",
      "UP",
      "-x",
      "a:",
      ":b",
      "a b",
      "a:b:c",
      "é",
      "x".repeat(300),
      "a/../b",
    ];
    for (const text of bad) assert.throws(() => parseReference(text), { kind: "InvalidArgument" }, text);
  });
});

describe("the catalogue", () => {
  test("forgets tags below a prefix that nobody has set for a while, of every project; their digests stay for now", async () => {
    const clock = new ManualClock(0);
    const catalogue = new Catalogue(new MemoryArtifactTable(), clock);
    const old = await catalogue.put("p", "cache/old", artifact("snapshot", [1]));
    for (const [project, name] of [
      ["q", "cache/used"],
      ["q", "cached"],
      [SHARED_PROJECT, "cache/old"],
    ] as const) {
      await catalogue.put(project, name, artifact("snapshot", [2]));
    }
    clock.advance(100);
    await catalogue.tag("q", "cache/used", "cache/used");
    await catalogue.expire("cache/", 100);
    await assert.rejects(catalogue.resolve("p", "cache/old"), { kind: "NotFound" });
    await assert.rejects(catalogue.resolve(SHARED_PROJECT, "cache/old"), { kind: "NotFound" });
    assert.equal((await catalogue.resolve("p", `cache/old@${old.digest}`)).digest, old.digest);
    assert.deepEqual(
      (await catalogue.list("q")).map(({ name }) => name),
      ["cache/used", "cached"],
    );
  });

  test("forgets none of them while others cannot be told", async () => {
    const away = new SandboxError("Unavailable", "the store is away");
    const shared = { publish: () => undefined, find: async () => undefined, withdraw: () => Promise.reject(away) };
    const catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock(0), shared);
    await catalogue.put("p", "cache/old", artifact("snapshot", [1]));
    await catalogue.expire("cache/", 100);
    assert.equal((await catalogue.resolve("p", "cache/old")).tag, "latest");
  });

  test("gives a name what was put under it last", async () => {
    const clock = new ManualClock(5);
    const catalogue = new Catalogue(new MemoryArtifactTable(), clock);
    await catalogue.put("p", "debian", artifact("base", [1]));
    clock.advance(10);
    const record = await catalogue.put("p", "debian:latest", artifact("base", [2]));
    assert.deepEqual(await catalogue.resolve("p", "debian"), record);
    assert.equal(record.createdAtMs, 15);
    assert.deepEqual(await catalogue.layers(), new Set([layer(1), layer(2)]));
    const told = await catalogue.layersPruned(async () => new Set(), clock.now());
    assert.notDeepEqual(await catalogue.layers(), told);
    await catalogue.prune(async () => new Set(), clock.now());
    assert.deepEqual(await catalogue.layers(), new Set([layer(2)]));
    assert.deepEqual(told, new Set([layer(2)]));
  });

  test("gives equal artifacts equal digests, and other layers or config another one", async () => {
    const catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock());
    const { digest } = await catalogue.put("p", "a", artifact("base", [1], { env: { A: "1", B: "2" } }));
    assert.equal((await catalogue.put("q", "b", artifact("base", [1], { env: { B: "2", A: "1" } }))).digest, digest);
    assert.notEqual((await catalogue.put("p", "c", artifact("base", [1], { env: { A: "1" } }))).digest, digest);
    assert.notEqual(
      (await catalogue.put("p", "d", artifact("toolkit", [1], { env: { A: "1", B: "2" } }))).digest,
      digest,
    );
  });

  test("shows shared artifacts to every project, its own before them, and never another project's", async () => {
    const catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock());
    await catalogue.put(SHARED_PROJECT, "debian", artifact("base", [1]));
    await catalogue.put(SHARED_PROJECT, "tools", artifact("toolkit", [2]));
    await catalogue.put("mine", "debian", artifact("base", [3]));
    await catalogue.put("mine-too", "secret", artifact("workspace", [4]));
    assert.deepEqual((await catalogue.resolve("mine", "debian")).layers, [layer(3)]);
    assert.deepEqual((await catalogue.resolve("other", "debian")).layers, [layer(1)]);
    await assert.rejects(catalogue.resolve("mine", "secret"), { kind: "NotFound" });
    assert.deepEqual(
      (await catalogue.list("mine")).map(({ project, name }) => `${project}/${name}`),
      ["mine/debian", "shared/tools"],
    );
  });

  test("forgets a name, says NotFound for an unknown one, and lets nobody remove a shared one from elsewhere", async () => {
    const catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock());
    await catalogue.put("p", "a", artifact("base", [1]));
    await catalogue.put(SHARED_PROJECT, "s", artifact("base", [1]));
    await catalogue.remove("p", "a");
    await assert.rejects(catalogue.remove("p", "a"), { kind: "NotFound" });
    await assert.rejects(catalogue.remove("p", "s"), { kind: "NotFound" });
    await assert.rejects(catalogue.resolve("p", "a"), { kind: "NotFound" });
  });

  test("finds a digest after its tag moved, until nothing needs it", async () => {
    const clock = new ManualClock();
    const catalogue = new Catalogue(new MemoryArtifactTable(), clock);
    const first = await catalogue.put("p", "a:v1", { ...artifact("base", [1]), labels: { run: "7" } });
    await catalogue.put("p", "a:v1", artifact("base", [2]));
    const reference = `a@${first.digest}`;
    assert.deepEqual(await catalogue.resolve("p", reference), { ...first, tag: "" });
    assert.deepEqual((await catalogue.list("p")).length, 1);
    await assert.rejects(catalogue.resolve("q", reference), { kind: "NotFound" });
    await assert.rejects(catalogue.remove("p", reference), { kind: "InvalidArgument" });
    clock.advance(1);
    // Young, or in use: it stays.
    await catalogue.prune(async () => new Set(), first.taggedAtMs);
    await catalogue.prune(async () => new Set([first.digest]), clock.now());
    assert.equal((await catalogue.resolve("p", reference)).digest, first.digest);
    await catalogue.prune(async () => new Set(), clock.now());
    await assert.rejects(catalogue.resolve("p", reference), { kind: "NotFound" });
    assert.equal((await catalogue.resolve("p", "a:v1")).layers[0], layer(2));
  });

  test("keeps what a tagged artifact was made of, to any depth, and refuses a cycle", async () => {
    const clock = new ManualClock();
    const catalogue = new Catalogue(new MemoryArtifactTable(), clock);
    const base = await catalogue.put("p", "base", artifact("base", [1]));
    const middle = await catalogue.put("p", "middle", { ...artifact("base", [1, 2]), parents: [base.digest] });
    await catalogue.put("p", "top", { ...artifact("base", [1, 2, 3]), parents: [middle.digest] });
    await assert.rejects(catalogue.put("p", "x", { ...artifact("base", [1]), parents: [middle.digest] }), {
      kind: "InvalidArgument",
    });
    await assert.rejects(catalogue.put("p", "x", { ...artifact("base", [1]), parents: [base.digest] }), {
      kind: "InvalidArgument",
    });
    for (const name of ["base", "middle"]) await catalogue.remove("p", name);
    clock.advance(1);
    await catalogue.prune(async () => new Set(), clock.now());
    for (const { name, digest } of [base, middle]) {
      assert.equal((await catalogue.resolve("p", `${name}@${digest}`)).digest, digest);
    }
    await catalogue.remove("p", "top");
    await catalogue.prune(async () => new Set(), clock.now());
    await assert.rejects(catalogue.resolve("p", `base@${base.digest}`), { kind: "NotFound" });
  });

  test("gives further tags to what there is, also one that everybody sees", async () => {
    const catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock());
    const made = await catalogue.put("p", "a", artifact("base", [1]));
    assert.equal((await catalogue.tag("p", `a@${made.digest}`, "b:v2")).digest, made.digest);
    await catalogue.tag("p", "b:v2", "everyone", SHARED_PROJECT);
    assert.equal((await catalogue.resolve("q", "everyone")).digest, made.digest);
    await assert.rejects(catalogue.tag("p", "none", "c"), { kind: "NotFound" });
    await assert.rejects(catalogue.tag("p", "a", "c@sha256:0"), { kind: "InvalidArgument" });
  });

  test("does not take for published what has got its tag since", async () => {
    const clock = new ManualClock();
    const catalogue = new Catalogue(new MemoryArtifactTable(), clock);
    const old = await catalogue.put("p", "a", artifact("base", [1]));
    clock.advance(1);
    const now = await catalogue.put("p", "a", artifact("base", [2]));
    await catalogue.published(old);
    assert.equal((await catalogue.resolve("p", "a")).isPublished, false);
    await catalogue.published(now);
    assert.equal((await catalogue.resolve("p", "a")).isPublished, true);
  });
});

describe("composing an environment", () => {
  test("stacks base, workspace and toolkits, and lets later parts override earlier ones", () => {
    const composed = compose({
      base: part("base", [1, 2], { env: { A: "base", B: "base" }, user: "root", workdir: "/" }),
      workspace: part("workspace", [3], { env: { B: "work" }, workdir: "/work" }),
      toolkits: [part("toolkit", [4]), part("toolkit", [5], { env: { C: "tool" } })],
    });
    assert.deepEqual(composed.layers, [1, 2, 3, 4, 5].map(layer));
    assert.deepEqual(composed.config, { env: { A: "base", B: "work", C: "tool" }, user: "root", workdir: "/work" });
  });

  test("takes a layer once, where it stands highest: an overlay refuses one directory twice", () => {
    const composed = compose({ base: part("base", [1, 2]), workspace: part("workspace", [1, 3]), toolkits: [] });
    assert.deepEqual(composed.layers, [2, 1, 3].map(layer));
  });

  test("refuses a part of the wrong kind by name", () => {
    const workspace = part("workspace", [1]);
    assert.throws(() => compose({ base: workspace, toolkits: [] }), {
      kind: "InvalidArgument",
      message: "the-workspace:latest is a workspace, not a base",
    });
    assert.throws(() => compose({ base: part("base", [1]), toolkits: [workspace] }), { kind: "InvalidArgument" });
  });

  test("refuses more layers than an overlay takes", () => {
    const toolkits = Array.from({ length: MAX_LAYERS }, (_, index) => part("toolkit", [index + 2]));
    assert.throws(() => compose({ base: part("base", [1]), toolkits }), {
      kind: "InvalidArgument",
      message: /501 layers/,
    });
    assert.equal(compose({ base: part("base", [1]), toolkits: toolkits.slice(1) }).layers.length, MAX_LAYERS);
  });
});
