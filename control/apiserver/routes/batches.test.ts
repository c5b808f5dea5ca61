import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { parseEdgeId } from "#core/ids.ts";
import { type Answer, rig } from "../../test-support/rig.ts";
import { TestNode } from "../../test-support/test-node.ts";

type Line = {
  readonly index?: number;
  readonly sandbox?: string & { readonly id: string };
  readonly command?: { readonly status?: { readonly code?: number }; readonly output?: { readonly stdout: string } };
  readonly error?: { readonly kind: string };
};

function linesOf(answer: Answer): readonly Line[] {
  assert.equal(answer.headers["content-type"], "application/x-ndjson", answer.bytes.toString());
  const text = answer.bytes.toString().trim();
  return text === "" ? [] : text.split("\n").map((line) => JSON.parse(line) as Line);
}

const BUSYBOX = { base: "busybox", labels: { set: "a" } };

test("one failing child fails a whole batch: each create has its own line", async () => {
  await using api = await rig();
  let creates = 0;
  api.node.before = (call) => {
    creates += call === "create" ? 1 : 0;
    if (call === "create" && creates % 3 === 0) throw new SandboxError("FailedPrecondition", "not this one");
  };
  const lines = linesOf(await api.call("POST", "/v1/sandboxes/batch", { json: { count: 9, sandbox: BUSYBOX } }));
  assert.deepEqual(lines.map(({ index }) => index ?? -1).toSorted(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(lines.filter(({ error }) => error?.kind === "FailedPrecondition").length, 3);
  assert.equal(api.node.sandboxes.size, 6);
});

test("a batch that is repeated under its key finds its sandboxes", async () => {
  await using api = await rig();
  const ask = async () => {
    const options = { json: { count: 5, concurrency: 2, sandbox: BUSYBOX }, headers: { "idempotency-key": "k" } };
    const lines = linesOf(await api.call("POST", "/v1/sandboxes/batch", options));
    return lines.map(({ index, sandbox }) => `${index} ${sandbox?.id}`).toSorted();
  };
  assert.deepEqual(await ask(), await ask());
  assert.equal(api.node.sandboxes.size, 5);
});

test("the keys of a batch are never those of a single create, whatever their names", async () => {
  await using api = await rig();
  const post = (path: string, key: string, json: object) =>
    api.call("POST", path, { json, headers: { "idempotency-key": key } });
  const made = linesOf(await post("/v1/sandboxes/batch", "k", { count: 3, sandbox: BUSYBOX }));
  const seen = new Set(made.map(({ sandbox }) => sandbox?.id));
  for (const key of ["k", "k:0", "k:1", "k 0", "k\t0", "k\\n0", "k%0A0"]) {
    const { id } = JSON.parse((await post("/v1/sandboxes", key, BUSYBOX)).bytes.toString());
    assert.ok(!seen.has(id), JSON.stringify(key));
    seen.add(id);
  }
  assert.equal(api.node.sandboxes.size, seen.size);
});

test("never more than so many at a time", async () => {
  await using api = await rig();
  let running = 0;
  let most = 0;
  api.node.before = async (call) => {
    if (call !== "create") return;
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
  };
  await api.call("POST", "/v1/sandboxes/batch", { json: { count: 20, concurrency: 3, sandbox: BUSYBOX } });
  assert.equal(most, 3);
});

test("a command runs in those that are named or labelled, each once, and one that is not there is told in its line", async () => {
  await using api = await rig();
  api.node.program = { stdout: Buffer.from("out"), code: 0 };
  const made = linesOf(await api.call("POST", "/v1/sandboxes/batch", { json: { count: 3, sandbox: BUSYBOX } }));
  const ids = made.map(({ sandbox }) => sandbox?.id ?? "");
  const command = { argv: ["true"] };
  const labelled = linesOf(await api.call("POST", "/v1/commands/batch", { json: { labels: { set: "a" }, command } }));
  assert.deepEqual(labelled.map(({ sandbox }) => sandbox).toSorted(), ids.toSorted());
  for (const line of labelled) {
    assert.equal(line.command?.status?.code, 0);
    assert.equal(Buffer.from(line.command?.output?.stdout ?? "", "base64").toString(), "out");
  }
  const named = [...ids, ...ids, "sn1-aaaaaaaaaaaaaaaa", "x"];
  const lines = linesOf(await api.call("POST", "/v1/commands/batch", { json: { sandboxes: named, command } }));
  assert.equal(lines.length, 5);
  assert.deepEqual(lines.flatMap(({ error }) => error?.kind ?? []).toSorted(), ["NotFound", "NotFound"]);
});

test("wishes for many that make no sense are refused before anything begins", async () => {
  await using api = await rig();
  const cases: readonly (readonly ["POST" | "DELETE", string, object | undefined])[] = [
    ["POST", "/v1/sandboxes/batch", { count: 0, sandbox: BUSYBOX }],
    ["POST", "/v1/sandboxes/batch", { count: 10_001, sandbox: BUSYBOX }],
    ["POST", "/v1/sandboxes/batch", { count: 1, concurrency: 0, sandbox: BUSYBOX }],
    ["POST", "/v1/sandboxes/batch", { count: 1, sandbox: { ...BUSYBOX, memoryMiB: 1 } }],
    ["POST", "/v1/commands/batch", { command: { argv: ["true"] } }],
    ["POST", "/v1/commands/batch", { sandboxes: ["x"], labels: { a: "b" }, command: { argv: ["true"] } }],
    ["POST", "/v1/commands/batch", { labels: {}, command: { argv: ["true"] } }],
    ["POST", "/v1/commands/batch", { labels: { a: "b" }, command: { argv: ["cat"], stdin: "pipe" } }],
    ["POST", "/v1/commands/batch", { labels: { a: "b" }, command: {} }],
    ["DELETE", "/v1/sandboxes", undefined],
    ["DELETE", "/v1/sandboxes?label=x", undefined],
  ];
  for (const [method, path, json] of cases) {
    const answer = await api.call(method, path, json === undefined ? {} : { json });
    assert.equal(answer.status, 400, `${method} ${path} ${JSON.stringify(json)}: ${answer.bytes}`);
  }
  assert.equal(api.node.sandboxes.size, 0);
});

test("those with the labels are removed, others are not, and each has its line", async () => {
  await using api = await rig();
  await api.call("POST", "/v1/sandboxes/batch", { json: { count: 4, sandbox: BUSYBOX } });
  await api.call("POST", "/v1/sandboxes", { json: { base: "busybox", labels: { set: "b" } } });
  let removals = 0;
  api.node.before = (call) => {
    removals += call === "destroy" ? 1 : 0;
    if (call === "destroy" && removals === 2) throw new SandboxError("Unavailable", "not now");
  };
  const lines = linesOf(await api.call("DELETE", "/v1/sandboxes?label=set%3Da"));
  assert.equal(lines.length, 4);
  assert.equal(lines.filter(({ error }) => error?.kind === "Unavailable").length, 1);
  assert.equal(api.node.sandboxes.size, 2);
});

test("a node that cannot be asked keeps a batch by labels from beginning", async () => {
  const silent = new TestNode("n2");
  await using api = await rig({ nodes: [new TestNode("n1"), silent] });
  await api.call("POST", "/v1/sandboxes/batch", { json: { count: 2, sandbox: BUSYBOX } });
  silent.before = (call) => {
    if (call === "list") throw new SandboxError("Unavailable", `${parseEdgeId("n2")} is away`);
  };
  assert.equal((await api.call("DELETE", "/v1/sandboxes?label=set%3Da")).status, 503);
  const answer = await api.call("POST", "/v1/commands/batch", {
    json: { labels: { set: "a" }, command: { argv: ["true"] } },
  });
  assert.equal(answer.status, 503);
});
