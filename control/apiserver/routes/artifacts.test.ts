import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { memberOf, rig } from "../../test-support/rig.ts";

function linesOf(bytes: Buffer): unknown[] {
  return bytes
    .toString()
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
}

test("an import streams into the maker and is in the catalogue afterwards", async () => {
  await using api = await rig();
  const before = api.maker.received;
  const { status, json } = await api.call("POST", "/v1/artifacts/import?name=team/tools:v1&kind=toolkit&format=oci", {
    body: Buffer.alloc(100_000),
  });
  assert.equal(status, 201);
  assert.equal(api.maker.received - before, 100_000);
  assert.deepEqual(
    [json.name, json.tag, json.kind, json.provenance, json.project, json.layers.length],
    ["team/tools", "v1", "toolkit", "oci upload", "default", 1],
  );
  const named = await api.call("GET", `/v1/artifacts/${encodeURIComponent("team/tools:v1")}`);
  assert.deepEqual(named.json, json);
  const list = await api.call("GET", "/v1/artifacts");
  assert.deepEqual(list.json.artifacts.map(({ name }: { name: string }) => name).sort(), ["busybox", "team/tools"]);
});

test("bad names, kinds and formats are refused before the upload is read", async () => {
  await using api = await rig();
  const before = api.maker.received;
  for (const query of [
    "name=A&kind=base",
    "name=a&kind=disk",
    "name=a",
    "kind=base",
    "name=a&kind=base&format=zip",
    "name=../a&kind=base",
  ]) {
    const { status, json } = await api.call("POST", `/v1/artifacts/import?${query}`, { body: "x" });
    assert.deepEqual([status, json.error.kind], [400, "InvalidArgument"], query);
  }
  assert.equal(api.maker.received, before);
});

test("an import that fails names its reason and leaves no name", async () => {
  await using api = await rig();
  api.maker.importArchive = async () => {
    throw new SandboxError("StorageFull", "the store is full");
  };
  const { status, json } = await api.call("POST", "/v1/artifacts/import?name=a&kind=base", { body: "x" });
  assert.deepEqual([status, json.error.kind], [507, "StorageFull"]);
  assert.equal((await api.call("GET", "/v1/artifacts/a")).status, 404);
});

test("a build tells its progress line by line, then its artifact", async () => {
  await using api = await rig();
  const more = Promise.withResolvers<void>();
  api.maker.build = async ({ progress }) => {
    progress("one");
    await more.promise;
    progress("two");
  };
  setTimeout(() => more.resolve(), 20);
  const { status, headers, bytes } = await api.call("POST", "/v1/artifacts/build", {
    json: { name: "debian", suite: "bookworm", include: ["python3", "git"] },
  });
  assert.deepEqual([status, headers["content-type"]], [200, "application/x-ndjson"]);
  const [one, two, last, ...rest] = linesOf(bytes) as [
    object,
    object,
    { artifact: { name: string; provenance: string } },
  ];
  assert.deepEqual([one, two, rest], [{ progress: "one" }, { progress: "two" }, []]);
  assert.deepEqual([last.artifact.name, last.artifact.provenance], ["debian", "debian bookworm python3,git"]);
});

test("a build that fails ends with a typed error line and leaves no name", async () => {
  await using api = await rig();
  api.maker.build = async ({ progress }) => {
    progress("one");
    throw new SandboxError("Unavailable", "the mirror does not answer", { hint: "try later" });
  };
  const { bytes } = await api.call("POST", "/v1/artifacts/build", { json: { name: "debian" } });
  const error = { kind: "Unavailable", message: "the mirror does not answer", retry: "backoff", hint: "try later" };
  assert.deepEqual(linesOf(bytes), [{ progress: "one" }, { error }]);
  assert.equal((await api.call("GET", "/v1/artifacts/debian")).status, 404);
});

test("packages and suites that could be options of a program are refused", async () => {
  await using api = await rig();
  for (const json of [
    { name: "a", suite: "--help" },
    { name: "a", include: ["-x"] },
    { name: "a", include: ["a;b"] },
    { name: "a", suites: "x" },
  ]) {
    assert.equal((await api.call("POST", "/v1/artifacts/build", { json })).status, 400, JSON.stringify(json));
  }
});

test("removing an artifact keeps every layer that an artifact or a sandbox names", async () => {
  await using api = await rig();
  const other = await api.call("POST", "/v1/artifacts/import?name=other&kind=base", { body: "x" });
  const base = (await api.call("GET", "/v1/artifacts/busybox")).json.layers[0];
  await api.sandbox();
  assert.equal((await api.call("DELETE", "/v1/artifacts/busybox")).status, 204);
  assert.deepEqual([...(api.maker.kept[0] ?? [])].sort(), [base, other.json.layers[0]].sort());
  assert.equal((await api.call("DELETE", "/v1/artifacts/busybox")).status, 404);
  assert.equal((await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } })).status, 404);
});

test("nothing is collected while a node does not say what it uses", async () => {
  await using api = await rig();
  api.node.before = () => {
    throw new SandboxError("Unavailable", "gone");
  };
  assert.equal((await api.call("DELETE", "/v1/artifacts/busybox")).status, 204);
  assert.deepEqual(api.maker.kept, []);
});

test("artifacts of a project are its own", async () => {
  await using api = await rig();
  await api.control.iam.createProject("team");
  const token = await api.control.iam.createToken({ name: "m", project: "team", role: "member" });
  assert.equal((await api.call("GET", "/v1/artifacts/busybox", { token })).status, 404);
  assert.equal((await api.call("DELETE", "/v1/artifacts/busybox", { token })).status, 404);
  assert.deepEqual((await api.call("GET", "/v1/artifacts", { token })).json, { artifacts: [] });
  assert.equal((await api.call("GET", "/v1/artifacts/busybox")).status, 200);
});

test("an import from elsewhere tells its progress, then its artifact, or why there is none", async () => {
  await using api = await rig();
  const json = { name: "app", kind: "base", source: { type: "registry", image: "debian:12" } };
  api.maker.fetch = async ({ progress }) => progress("fetching");
  const made = await api.call("POST", "/v1/artifacts/import-from", { json });
  const [line, last] = linesOf(made.bytes) as [object, { artifact: { name: string; provenance: string } }];
  assert.deepEqual([line, last.artifact.name, last.artifact.provenance], [{ progress: "fetching" }, "app", "registry"]);
  api.maker.fetch = async () => {
    throw new SandboxError("NotFound", "no such image");
  };
  const failed = await api.call("POST", "/v1/artifacts/import-from", { json: { ...json, name: "other" } });
  assert.deepEqual((linesOf(failed.bytes) as [{ error: { kind: string } }])[0].error.kind, "NotFound");
  assert.equal((await api.call("GET", "/v1/artifacts/other")).status, 404);
});

test("a list of artifacts has those that carry every label asked for", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  for (const [name, labels] of [
    ["a", { x: "1", y: "2" }],
    ["b", { x: "1" }],
    ["c", { x: "2=3" }],
  ] as const) {
    assert.equal((await api.call("POST", `/v1/sandboxes/${id}/pack`, { json: { name, labels } })).status, 201);
  }
  const names = async (query: string) => {
    const { json } = await api.call("GET", `/v1/artifacts?${query}`);
    return json.artifacts.map(({ name }: { readonly name: string }) => name).toSorted();
  };
  assert.deepEqual(await names("label=x%3D1"), ["a", "b"]);
  assert.deepEqual(await names("label=x=1&label=y=2"), ["a"]);
  assert.deepEqual(await names("label=x=2=3"), ["c"]);
  assert.deepEqual(await names("label=z="), []);
  assert.ok((await names("")).length >= 3);
  assert.equal((await api.call("GET", "/v1/artifacts?label=x")).status, 400);
});

test("labels come with an artifact, and tags to it, one that everybody sees only from an admin", async () => {
  await using api = await rig();
  const path = "/v1/artifacts/import?name=kit&kind=toolkit&label=run=7&label=a%2Fb=x%3Dy";
  const made = await api.call("POST", path, { body: "x" });
  assert.deepEqual(made.json.labels, { run: "7", "a/b": "x=y" });
  assert.equal(
    (await api.call("POST", "/v1/artifacts/import?name=kit&kind=toolkit&label=x", { body: "x" })).status,
    400,
  );
  const tagged = await api.call("POST", "/v1/artifacts/kit/tags", { json: { target: "kit:v2" } });
  assert.deepEqual([tagged.status, tagged.json.tag, tagged.json.digest], [201, "v2", made.json.digest]);
  const member = await memberOf(api, "team");
  assert.equal((await api.call("GET", "/v1/artifacts/kit", { token: member })).status, 404);
  const json = { target: "own", shared: true };
  const refused = await api.call("POST", "/v1/artifacts/own/tags", { json, token: member });
  assert.equal(refused.json.error.kind, "PermissionDenied");
  await api.call("POST", "/v1/artifacts/kit/tags", { json: { target: "kit", shared: true } });
  const seen = await api.call("GET", "/v1/artifacts/kit", { token: member });
  assert.deepEqual([seen.json.project, seen.json.digest], ["shared", made.json.digest]);
});

test("without a store nothing is pushed or pulled, and the error says what to do", async () => {
  await using api = await rig();
  for (const verb of ["push", "pull"]) {
    const { json } = await api.call("POST", `/v1/artifacts/busybox/${verb}`);
    assert.deepEqual([json.error.kind, /--store/.test(json.error.hint ?? "")], ["FailedPrecondition", true]);
  }
});

test("steps of builds that were not used for long are forgotten, and nothing else", async () => {
  const clock = new ManualClock();
  await using api = await rig({ clock });
  for (const name of ["build-cache/old", "build-cache/used", "builder"]) {
    await api.call("POST", `/v1/artifacts/import?name=${name}&kind=base`, { body: name });
  }
  const status = async (name: string) => (await api.call("GET", `/v1/artifacts/${encodeURIComponent(name)}`)).status;
  clock.advance(300_000);
  const used = { json: { target: "build-cache/used" } };
  assert.equal(
    (await api.call("POST", `/v1/artifacts/${encodeURIComponent("build-cache/used")}/tags`, used)).status,
    201,
  );
  clock.advance(300_000);
  while ((await status("build-cache/old")) === 200);
  assert.deepEqual(await Promise.all(["build-cache/old", "build-cache/used", "builder"].map(status)), [404, 200, 200]);
});

test("members fetch from outside the node's own networks, admins from anywhere", async () => {
  await using api = await rig();
  const asked: string[] = [];
  api.maker.fetch = async ({ reach }) => void asked.push(reach);
  const json = { name: "app", kind: "base", source: { type: "registry", image: "x" } };
  await api.call("POST", "/v1/artifacts/import-from", { json, token: await memberOf(api, "team") });
  await api.call("POST", "/v1/artifacts/import-from", { json });
  assert.deepEqual(asked, ["outside", "anywhere"]);
});

test("a dry run of a collection tells what would go, and forgets nothing", async () => {
  await using api = await rig();
  const { status, json } = await api.call("POST", "/v1/artifacts/collect?dryRun=true");
  assert.deepEqual([status, json], [200, { layers: [`sha256:${"f".repeat(64)}`], bytes: 7 }]);
  const named = (await api.call("GET", "/v1/artifacts/busybox")).json.layers;
  assert.deepEqual(api.maker.kept, [new Set(named)]);
  assert.equal((await api.call("POST", "/v1/artifacts/collect?dryRun=maybe")).status, 400);
});
