import assert from "node:assert/strict";
import * as http from "node:http";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import type { OutputChunk } from "#core/node.ts";
import { type Rig, rig } from "../../test-support/rig.ts";

async function commands(api: Rig): Promise<string> {
  return `/v1/sandboxes/${await api.sandbox()}/commands`;
}

/** The path of a command that was just started. */
async function command(api: Rig): Promise<string> {
  const path = await commands(api);
  const { json } = await api.call("POST", path, { json: { argv: ["x"] } });
  return `${path}/${json.id}`;
}

test("a short command comes back with its end and its output", async () => {
  await using api = await rig();
  api.node.program = { stdout: Buffer.from([0xff, 0, 0x41]), code: 3 };
  const { status, json } = await api.call("POST", `${await commands(api)}?waitMs=1000&inlineBytes=2`, {
    json: {
      argv: ["a", "b"],
      env: { A: "1" },
      cwd: "/tmp",
      user: "1000",
      stdin: "pipe",
      timeLimitMs: 5,
      outputCapBytes: 9,
    },
    headers: { "idempotency-key": "k" },
  });
  assert.equal(status, 201);
  assert.deepEqual(json.status, { cause: "exited", code: 3, wallMs: 1, cpuMs: 1, maxRssKiB: 100 });
  assert.deepEqual(json.output, { stdout: Buffer.from([0xff, 0]).toString("base64"), stderr: "" });
  assert.deepEqual(json.stdout, { seen: 3, kept: 3, truncated: false, ended: true });
  const [{ spec } = {}] = api.node.commands.values();
  const given = { argv: ["a", "b"], env: { A: "1" }, cwd: "/tmp", user: "1000", stdin: "pipe" };
  assert.deepEqual(spec, {
    ...given,
    terminal: undefined,
    timeLimitMs: 5,
    waitFor: "leader",
    outputCapBytes: 9,
    idempotencyKey: "k",
  });
});

test("a command that runs on has neither status nor output", async () => {
  await using api = await rig();
  api.node.program = { stdout: Buffer.from("x"), code: undefined };
  const { json } = await api.call("POST", `${await commands(api)}?waitMs=1`, { json: { shell: "sleep 9" } });
  assert.deepEqual(["status" in json, "output" in json, json.pid], [false, false, 7]);
  assert.deepEqual(json.argv, ["/bin/sh", "-c", "sleep 9"]);
});

test("arguments that are not UTF-8 survive both ways", async () => {
  await using api = await rig();
  const path = await commands(api);
  const bytes = Buffer.from([0x2f, 0xff, 0xfe]);
  const { json } = await api.call("POST", path, { json: { argv: ["cat", { base64: bytes.toString("base64") }, "ä"] } });
  const [{ spec } = {}] = api.node.commands.values();
  assert.deepEqual(spec?.argv, ["cat", bytes, "ä"]);
  assert.deepEqual(json.argv, ["cat", { base64: bytes.toString("base64") }, "ä"]);
  const list = await api.call("GET", path);
  assert.deepEqual(list.json.commands[0]?.argv, json.argv);
});

test("a command line of 1 MiB in many arguments passes; one argument of 1 MiB is refused by name", async () => {
  await using api = await rig();
  const path = await commands(api);
  const many = await api.call("POST", path, {
    json: { argv: ["echo", ...Array.from({ length: 16 }, () => "x".repeat(65_536))] },
  });
  assert.equal(many.status, 201);
  const [{ spec } = {}] = api.node.commands.values();
  assert.equal(
    spec?.argv.reduce((sum, argument) => sum + argument.length, 0),
    4 + 1024 * 1024,
  );
  const single = await api.call("POST", path, { json: { argv: ["echo", "x".repeat(1024 * 1024)] } });
  assert.equal(single.json.error.kind, "InvalidArgument");
  assert.match(single.json.error.message, /argv\.1 has 1048576 bytes; Linux takes 131071 at most/);
});

test("every bad start names its field", async () => {
  await using api = await rig();
  const path = await commands(api);
  const cases: readonly (readonly [object, RegExp])[] = [
    [{}, /exactly one of argv and shell/],
    [{ argv: ["a"], shell: "a" }, /exactly one of argv and shell/],
    [{ argv: [] }, /argv must/],
    [{ argv: [""] }, /argv\.0 is empty/],
    [{ argv: [1] }, /argv\.0 must be string or object/],
    [{ argv: ["a\0b"] }, /argv\.0 contains a NUL byte/],
    [{ shell: "a\0b" }, /shell contains a NUL byte/],
    [{ argv: ["a", { base64: "AAA=" }] }, /argv\.1 contains a NUL byte/],
    [{ argv: ["a", { base64: "?" }] }, /argv\.1 is not base64/],
    [{ argv: ["a"], timeLimitMs: 0 }, /timeLimitMs must be >= 1; it is 0/],
    [{ argv: ["a"], timeLimitMs: -1 }, /timeLimitMs must be >= 1/],
    [{ argv: ["a"], outputCapBytes: 0 }, /outputCapBytes must be >= 1/],
    [{ argv: ["a"], cwd: "x" }, /cwd must match/],
    [{ argv: ["a"], stdin: "yes" }, /stdin must be one of none, pipe/],
    [{ argv: ["a"], timeout: 5 }, /the body has an unknown key: "timeout"/],
  ];
  for (const [json, message] of cases) {
    const answer = await api.call("POST", path, { json });
    assert.equal(answer.status, 400, JSON.stringify(json));
    assert.match(answer.json.error.message, message);
  }
  for (const query of [
    "waitMs=-1",
    "waitMs=1e3",
    "waitMs=999999",
    "wait=1",
    "waitMs=1&waitMs=2",
    "inlineBytes=2000000",
  ]) {
    assert.equal((await api.call("POST", `${path}?${query}`, { json: { argv: ["a"] } })).status, 400, query);
  }
  assert.ok(!api.node.calls.includes("startCommand"));
});

test("a program that is not there, and a sandbox without a shell, say what to do", async () => {
  await using api = await rig();
  const path = await commands(api);
  api.node.before = (name) => {
    if (name === "startCommand") throw new SandboxError("CommandNotFound", "no program nope");
  };
  const argv = await api.call("POST", path, { json: { argv: ["nope"] } });
  assert.deepEqual(
    [argv.status, argv.json.error.kind, argv.json.error.message],
    [422, "CommandNotFound", "no program nope"],
  );
  const shell = await api.call("POST", path, { json: { shell: "true" } });
  assert.deepEqual(
    [shell.json.error.kind, shell.json.error.message],
    ["CommandNotFound", "the sandbox has no shell at /bin/sh"],
  );
  assert.match(shell.json.error.hint ?? "", /argv/);
});

test("a wait ends before the call's own time limit", async () => {
  await using api = await rig();
  const path = await command(api);
  let waitMs = -1;
  const wait = api.node.waitCommand.bind(api.node);
  api.node.waitCommand = (id, which, ms, signal) => {
    waitMs = ms;
    return wait(id, which, ms, signal);
  };
  const { status } = await api.call("GET", `${path}?waitMs=300000`, { headers: { "dsec-timeout-ms": "2000" } });
  assert.equal(status, 200);
  assert.ok(waitMs > 1000 && waitMs <= 1750, `${waitMs}`);
});

test("commands are listed in pages", async () => {
  await using api = await rig();
  const path = await commands(api);
  api.node.nextPage = "17";
  const { json } = await api.call("GET", `${path}?limit=3&cursor=9&newestFirst=true`);
  assert.deepEqual([json.commands, json.cursor], [[], "17"]);
  assert.ok(api.node.calls.includes("listCommands 3 9 true"));
  api.node.nextPage = undefined;
  assert.deepEqual((await api.call("GET", path)).json, { commands: [] });
  assert.ok(api.node.calls.includes("listCommands 200 undefined false"));
  for (const query of ["limit=0", "limit=1001", "newestFirst=maybe", `cursor=${"1".repeat(65)}`]) {
    assert.equal((await api.call("GET", `${path}?${query}`)).status, 400, query);
  }
});

test("signals have names; unknown commands are NotFound", async () => {
  await using api = await rig();
  const path = await command(api);
  assert.equal((await api.call("POST", `${path}/signal`, { json: { signal: "SIGTERM" } })).status, 204);
  assert.ok(api.node.calls.includes("signalCommand SIGTERM"));
  assert.equal((await api.call("POST", `${path}/signal`, { json: { signal: 9 } })).status, 204);
  assert.ok(api.node.calls.includes("signalCommand 9"));
  for (const signal of ["sigterm", "", 0, 65, 1.5]) {
    assert.equal((await api.call("POST", `${path}/signal`, { json: { signal } })).status, 400);
  }
  const other = path.replace(/c[a-z0-9]+$/, "caaaaaaaaaaaa");
  assert.equal((await api.call("GET", other)).status, 404);
  assert.equal((await api.call("GET", other.replace("caaaaaaaaaaaa", "nonsense"))).status, 404);
  assert.equal((await api.call("GET", `${path}/output/stdin`)).status, 404);
});

test("stdin arrives as bytes, with its offset, in pieces", async () => {
  await using api = await rig();
  const path = await command(api);
  const pieces = async function* () {
    for (const byte of [0, 0xff, 0x0a]) yield Buffer.from([byte]);
  };
  const { json } = await api.call("POST", `${path}/stdin?offset=4&close=true`, { body: pieces() });
  assert.deepEqual(json, { offset: 7 });
  assert.deepEqual([...api.node.stdin], [0, 0xff, 0x0a]);
  assert.ok(api.node.calls.includes("writeStdin 4 true"));
  const empty = await api.call("POST", `${path}/stdin?close=1`);
  assert.equal(empty.status, 200);
});

test("an input that breaks off is no end of input to the node", async () => {
  await using api = await rig();
  const path = await command(api);
  const seen = Promise.withResolvers<unknown>();
  const started = Promise.withResolvers<void>();
  api.node.writeStdin = async (_id, _command, input) => {
    try {
      for await (const _ of input.bytes) started.resolve();
      seen.resolve("clean end");
    } catch (error) {
      seen.resolve(error);
    }
    return { offset: 0 };
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  const request = http.request({ hostname, port, method: "POST", path: `${path}/stdin?close=true`, headers });
  request.on("error", () => undefined);
  request.write("part");
  await started.promise;
  request.destroy();
  const error = await seen.promise;
  assert.ok(error instanceof SandboxError && error.kind === "Cancelled", String(error));
});

test("output is byte-exact, says where it begins, and why it ends", async () => {
  await using api = await rig();
  const path = await command(api);
  api.node.chunks = async function* (read): AsyncGenerator<OutputChunk> {
    yield { offset: read.offset, bytes: Buffer.from([0xff, 0x00]) };
    yield { offset: read.offset + 2, bytes: Buffer.from("z") };
  };
  const read = async (query: string) => {
    const { bytes, headers, trailers } = await api.call("GET", `${path}/output/stdout?${query}`);
    return [[...bytes], headers["x-dsec-offset"], trailers["x-dsec-end"]];
  };
  assert.deepEqual(await read("offset=5"), [[0xff, 0, 0x7a], "5", "caught-up"]);
  assert.deepEqual(await read("offset=5&follow=true"), [[0xff, 0, 0x7a], "5", "ended"]);
  api.node.chunks = async function* () {};
  assert.deepEqual(await read("offset=8&follow=true"), [[], "8", "ended"]);
});

test("a gap ends the reply before it, and the next reply begins after it", async () => {
  await using api = await rig();
  const path = await command(api);
  api.node.chunks = async function* (read): AsyncGenerator<OutputChunk> {
    if (read.offset < 2) yield { offset: 0, bytes: Buffer.from("ab").subarray(read.offset) };
    yield { offset: 100, bytes: Buffer.from("yz") };
  };
  const first = await api.call("GET", `${path}/output/stdout?follow=true`);
  assert.deepEqual(
    [first.bytes.toString(), first.headers["x-dsec-offset"], first.trailers["x-dsec-end"]],
    ["ab", "0", "gap"],
  );
  const second = await api.call("GET", `${path}/output/stdout?follow=true&offset=2`);
  assert.deepEqual(
    [second.bytes.toString(), second.headers["x-dsec-offset"], second.trailers["x-dsec-end"]],
    ["yz", "100", "ended"],
  );
});

test("a source that fails midway breaks the reply; one that fails at once is a typed error", async () => {
  await using api = await rig();
  const path = await command(api);
  api.node.chunks = async function* (): AsyncGenerator<OutputChunk> {
    yield { offset: 0, bytes: Buffer.from("ab") };
    throw new SandboxError("SandboxLost", "the agent died");
  };
  await assert.rejects(api.call("GET", `${path}/output/stdout`), { code: "ECONNRESET" });
  api.node.chunks = () => {
    throw new SandboxError("SandboxLost", "the agent died");
  };
  const { status, json } = await api.call("GET", `${path}/output/stdout`);
  assert.deepEqual([status, json.error.kind], [410, "SandboxLost"]);
});

test("a quiet command's reply begins at once, and a reader that leaves frees the node", async () => {
  await using api = await rig();
  const path = await command(api);
  const left = Promise.withResolvers<void>();
  api.node.chunks = async function* (_read, signal): AsyncGenerator<OutputChunk> {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    left.resolve();
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  const request = http.get({ hostname, port, path: `${path}/output/stderr?follow=true&offset=3`, headers });
  request.on("error", () => undefined);
  const response = await new Promise<http.IncomingMessage>((resolve) => request.once("response", resolve));
  response.on("error", () => undefined);
  assert.deepEqual([response.statusCode, response.headers["x-dsec-offset"]], [200, "3"]);
  request.destroy();
  await left.promise;
});
