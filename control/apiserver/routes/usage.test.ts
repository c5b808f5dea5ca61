import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxUsage } from "#core/usage.ts";
import { rig } from "../../test-support/rig.ts";

function sampleOf(id: string, atMs: number): SandboxUsage {
  return {
    id: id as SandboxId,
    atMs,
    cpu: { totalMs: 3, userMs: 2, systemMs: 1, throttledMs: 0 },
    memory: { bytes: 4096, peakBytes: 8192, swapBytes: 0 },
    oomKills: 1,
    oomVictims: [{ program: "hog", atMs: 5, residentBytes: 4096, full: "sandbox" }],
    pids: 1,
    diskBytes: undefined,
    io: undefined,
    network: undefined,
    limits: { cpus: 1, memoryBytes: 1024, swapBytes: 0, pids: 5, diskBytes: undefined },
    commands: { running: 1, recorded: 2 },
  };
}

test("what the node does not count is absent, not zero", async () => {
  await using api = await rig();
  const { id } = (await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } })).json;
  api.node.samples = async function* () {
    yield sampleOf(id, 7);
  };
  const { status, json } = await api.call("GET", `/v1/sandboxes/${id}/usage`);
  assert.equal(status, 200);
  assert.deepEqual((json as { oomVictims?: unknown }).oomVictims, [
    { program: "hog", atMs: 5, residentBytes: 4096, full: "sandbox" },
  ]);
  for (const key of ["diskBytes", "io", "network"]) assert.equal(key in json, false, key);
  assert.deepEqual((json as { limits?: unknown }).limits, { cpus: 1, memoryBytes: 1024, swapBytes: 0, pids: 5 });
});

test("a stream is lines of JSON, and its last line says why it broke", async () => {
  await using api = await rig();
  const { id } = (await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } })).json;
  api.node.samples = async function* ({ periodMs }) {
    yield sampleOf(id, periodMs ?? 0);
    throw new SandboxError("FailedPrecondition", "it failed");
  };
  const { status, headers, bytes } = await api.call("GET", `/v1/sandboxes/${id}/usage/stream?periodMs=250`);
  assert.deepEqual([status, headers["content-type"]], [200, "application/x-ndjson"]);
  const lines = bytes
    .toString()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.equal(lines.length, 2);
  assert.equal(lines[0].atMs, 250);
  assert.equal(lines[1].error.kind, "FailedPrecondition");
});

test("browsers get the same stream as server-sent events", async () => {
  await using api = await rig();
  const { id } = (await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } })).json;
  api.node.samples = async function* () {
    yield sampleOf(id, 7);
  };
  const headers = { accept: "text/event-stream" };
  const answer = await api.call("GET", `/v1/sandboxes/${id}/usage/stream`, { headers });
  assert.equal(answer.headers["content-type"], "text/event-stream");
  const [event = "", data = ""] = answer.bytes.toString().split("\n");
  assert.equal(event, "event: message");
  assert.equal((JSON.parse(data.replace(/^data: /, "")) as { atMs: number }).atMs, 7);
});

test("a stream that cannot begin is a refusal with its status", async () => {
  await using api = await rig();
  const { id } = (await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } })).json;
  assert.equal((await api.call("GET", "/v1/sandboxes/sn1-aaaaaaaaaaaaaaaa/usage")).status, 404);
  api.node.before = (call) => {
    if (call.startsWith("usage")) throw new SandboxError("FailedPrecondition", "it is creating");
  };
  assert.equal((await api.call("GET", `/v1/sandboxes/${id}/usage/stream`)).status, 412);
  assert.equal((await api.call("GET", `/v1/sandboxes/${id}/usage`)).status, 412);
  assert.equal((await api.call("GET", `/v1/sandboxes/${id}/usage/stream?periodMs=99`)).status, 400);
});
