import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { rig } from "../../test-support/rig.ts";

test("an export is the bytes of the artifact that the name means in the caller's project", async () => {
  await using api = await rig();
  const known = await api.call("GET", "/v1/artifacts/busybox");
  const { status, bytes } = await api.call("GET", "/v1/artifacts/busybox/export?compression=zstd");
  assert.deepEqual([status, bytes.toString()], [200, known.json.digest]);
  assert.equal((await api.call("GET", "/v1/artifacts/none/export")).status, 404);
  assert.equal((await api.call("GET", "/v1/artifacts/busybox/export?compression=lzma")).status, 400);
});

test("an export to a registry tells its progress, then the address, or why there is none", async () => {
  await using api = await rig();
  const path = "/v1/artifacts/busybox/export-to";
  const json = { type: "registry", image: "registry.example.org/bb:v1" };
  const done = await api.call("POST", path, { json });
  const lines = done.bytes
    .toString()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.deepEqual(lines, [{ progress: "sending" }, { exported: "docker://registry.example.org/bb:v1" }]);
  api.maker.exportToRegistry = async () => {
    throw new SandboxError("PermissionDenied", "not there");
  };
  const failed = await api.call("POST", path, { json });
  assert.equal(JSON.parse(failed.bytes.toString()).error.kind, "PermissionDenied");
  for (const bad of [{}, { ...json, type: "git" }, { ...json, more: 1 }]) {
    assert.equal((await api.call("POST", path, { json: bad })).status, 400);
  }
});
