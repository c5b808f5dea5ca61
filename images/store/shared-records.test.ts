import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type ArtifactRecord, artifactDigest } from "../catalogue.ts";
import { parseLayerDigest } from "../digest.ts";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { directoryStore } from "./directory.ts";
import { artifactKey } from "./layout.ts";
import { findRecord, putRecord } from "./shared-records.ts";

const { signal } = new AbortController();
const image = { labels: { a: "b" }, command: ["run", "me"], entrypoint: ["x"] };
const plain = {
  kind: "snapshot",
  layers: [parseLayerDigest(`sha256:${"1".repeat(64)}`)],
  config: { env: { A: "1" }, user: "me", workdir: "/w", image },
} as const;
const record: ArtifactRecord = {
  ...plain,
  ...{
    project: "p",
    name: "app",
    tag: "v1",
    digest: artifactDigest(plain),
    sizeBytes: 5,
    createdAtMs: 1,
    taggedAtMs: 2,
  },
  ...{ provenance: "a test", labels: { x: "y" }, parents: [], isPublished: true },
};

const shape = { firmware: "uefi", devices: "virtio", agent: true } as const;
const disk = {
  kind: "vm-image",
  layers: plain.layers,
  config: { env: {}, user: undefined, workdir: undefined, computer: shape },
} as const;
const diskRecord: ArtifactRecord = { ...record, ...disk, digest: artifactDigest(disk) };

describe("what nodes share of an artifact", () => {
  test("is all of it, notes of the image too, by tag and by digest", async () => {
    using root = temporaryDirectory();
    await using objects = directoryStore(root.path);
    await putRecord(objects, record, signal);
    assert.deepEqual(await findRecord(objects, "p", { name: "app", tag: "v1" }, signal), record);
    const byDigest = await findRecord(objects, "p", { name: "app", digest: record.digest }, signal);
    assert.deepEqual(byDigest, { ...record, tag: "", taggedAtMs: 0 });
    assert.equal(await findRecord(objects, "q", { name: "app", tag: "v1" }, signal), undefined);
  });

  test("is of a disk what starts it, too; another computer is refused", async () => {
    using root = temporaryDirectory();
    await using objects = directoryStore(root.path);
    await putRecord(objects, diskRecord, signal);
    assert.deepEqual(await findRecord(objects, "p", { name: "app", tag: "v1" }, signal), diskRecord);
    const file = join(root.path, artifactKey("p", diskRecord.digest));
    const text = readFileSync(file, "utf8");
    for (const damaged of [
      text.replace('"uefi"', '"bios"'),
      text.replace('"uefi"', '"x"'),
      text.replace("true", "1"),
    ]) {
      assert.notEqual(damaged, text);
      writeFileSync(file, damaged);
      await assert.rejects(findRecord(objects, "p", { name: "app", tag: "v1" }, signal), { kind: "Internal" }, damaged);
    }
  });

  test("is refused when the store has something else there", async () => {
    using root = temporaryDirectory();
    await using objects = directoryStore(root.path);
    await putRecord(objects, record, signal);
    const file = join(root.path, artifactKey("p", record.digest));
    const text = readFileSync(file, "utf8");
    const damages = [
      "",
      "[]",
      text.replace('"run"', '"rm"'),
      text.replace('"run"', "1"),
      text.replace('{"a":"b"}', '{"a":1}'),
      text.slice(0, 50),
    ];
    for (const damaged of damages) {
      writeFileSync(file, damaged);
      await assert.rejects(findRecord(objects, "p", { name: "app", tag: "v1" }, signal), { kind: "Internal" }, damaged);
    }
  });
});
