import assert from "node:assert/strict";
import * as http from "node:http";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import type { FileInfo } from "#core/sandbox.ts";
import { type Rig, rig } from "../../test-support/rig.ts";

async function files(api: Rig): Promise<string> {
  return `/v1/sandboxes/${await api.sandbox()}/files`;
}

const ENTRY: Omit<FileInfo, "name"> = {
  type: "symlink",
  mode: 0o777,
  uid: 1,
  gid: 2,
  size: 3,
  mtimeNs: 4_000_007n,
  target: Buffer.from([0xff]),
};

test("a file comes back as it was written, with its size and digest, whatever bytes its name has", async () => {
  await using api = await rig();
  const path = await files(api);
  const bytes = Buffer.from([0, 0xff, 0x0a]);
  const put = await api.call("PUT", `${path}?path=/a%FF%20b&mode=0600&parents=true&user=1000:5`, { body: bytes });
  assert.equal(put.json.size, 3);
  assert.match(put.json.sha256, /^[0-9a-f]{64}$/);
  assert.deepEqual([...api.node.files.keys()], ["/a\u00ff b"]);
  assert.ok(api.node.calls.includes("writeFile 600 true 1000:5"));
  const get = await api.call("GET", `${path}?path=%2Fa%ff+b`);
  assert.deepEqual([get.status, get.bytes, get.headers["content-type"]], [200, bytes, "application/octet-stream"]);
  assert.deepEqual((await api.call("GET", `${path}?path=%2Fa%ff+b&offset=1&length=1`)).bytes, bytes.subarray(1, 2));
});

test("any type of content is bytes, JSON too", async () => {
  await using api = await rig();
  const path = await files(api);
  const headers = { "content-type": "application/json" };
  const put = await api.call("PUT", `${path}?path=/j`, { body: "{broken", headers });
  assert.deepEqual([put.status, put.json.size], [200, 7]);
});

test("bad paths and options are refused by name", async () => {
  await using api = await rig();
  const path = await files(api);
  const cases: readonly (readonly [string, RegExp])[] = [
    ["", /path is missing in the query/],
    ["path=", /path must be an absolute path/],
    ["path=a", /path must be an absolute path/],
    ["path=/a%00", /path contains a NUL byte/],
    ["path=/a%zz", /not percent-encoded/],
    ["path=/a%f", /not percent-encoded/],
    [`path=/${"a".repeat(5000)}`, /path has 5001 bytes/],
    ["path=/a&path=/b", /path is given twice/],
    ["path=/a&offset=-1", /offset must be >= 0/],
    ["path=/a&offset=x", /offset must be integer/],
    ["path=/a&user=", /user must/],
    ["path=/a&user=%ff", /not UTF-8/],
    ["path=/a&recursive=true", /unknown key: "recursive"/],
  ];
  for (const [query, message] of cases) {
    const { status, json } = await api.call("GET", `${path}?${query}`);
    assert.equal(status, 400, query);
    assert.match(json.error.message, message);
  }
  assert.match((await api.call("PUT", `${path}?path=/a&mode=8`)).json.error.message, /mode must match/);
  assert.match(
    (await api.call("DELETE", `${path}?path=/a&recursive=maybe`)).json.error.message,
    /recursive must be boolean/,
  );
});

test("directories are listed, made and removed; names that are not UTF-8 are base64", async () => {
  await using api = await rig();
  const path = await files(api);
  api.node.entries = [
    { ...ENTRY, name: Buffer.from("ä") },
    { ...ENTRY, name: Buffer.from([0xfe]), target: undefined },
  ];
  const { bytes } = await api.call("GET", `${path}/list?path=/`);
  const [first, second] = String(bytes)
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  const shown = { ...ENTRY, name: "ä", target: { base64: "/w==" }, mtimeMs: 4, mtimeNs: "4000007" };
  assert.deepEqual(first, shown);
  assert.deepEqual([second.name, "target" in second], [{ base64: "/g==" }, false]);
  assert.equal((await api.call("GET", `${path}/stat?path=/a`)).json.name, "ä");
  assert.equal((await api.call("POST", `${path}/mkdir?path=/a&parents=1`)).status, 204);
  assert.equal((await api.call("DELETE", `${path}?path=/a&recursive=true`)).status, 204);
  // The watcher asks the node as well, whenever it is time.
  const changes = api.node.calls.filter((call) => call.startsWith("changeFile"));
  assert.deepEqual(changes, ["changeFile mkdir 493 true", "changeFile remove true"]);
});

test("a missing file is NotFound before any byte; one that fails midway breaks the reply", async () => {
  await using api = await rig();
  const path = await files(api);
  assert.equal((await api.call("GET", `${path}?path=/none`)).status, 404);
  api.node.content = async function* () {
    yield Buffer.from("half");
    throw new SandboxError("SandboxLost", "gone");
  };
  await assert.rejects(api.call("GET", `${path}?path=/x`), { code: "ECONNRESET" });
});

test("a refused upload gets its reason while the client still sends", async () => {
  await using api = await rig();
  const path = await files(api);
  api.node.writeFile = async () => {
    throw new SandboxError("SandboxLimit", "disk full");
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  const request = http.request({ hostname, port, method: "PUT", path: `${path}?path=/x`, headers });
  request.on("error", () => undefined);
  request.write("first");
  const response = await new Promise<http.IncomingMessage>((resolve) => request.once("response", resolve));
  assert.equal(response.statusCode, 409);
  request.destroy();
});

test("an upload that breaks off never looks complete to the node", async () => {
  await using api = await rig();
  const path = await files(api);
  const outcome = Promise.withResolvers<string>();
  const started = Promise.withResolvers<void>();
  api.node.writeFile = async (_id, _write, bytes) => {
    try {
      for await (const _ of bytes) started.resolve();
      outcome.resolve("complete");
    } catch {
      outcome.resolve("broken");
    }
    throw new SandboxError("Cancelled", "x");
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}`, "content-length": "100" };
  const request = http.request({ hostname, port, method: "PUT", path: `${path}?path=/x`, headers });
  request.on("error", () => undefined);
  request.write("part");
  await started.promise;
  request.destroy();
  assert.equal(await outcome.promise, "broken");
});

test("a gigabyte passes each way in bounded memory", async () => {
  await using api = await rig();
  const path = await files(api);
  const total = 1024 ** 3;
  const block = Buffer.alloc(256 * 1024, 7);
  const blocks = async function* () {
    for (let sent = 0; sent < total; sent += block.length) yield block;
  };
  let peak = 0;
  const timer = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss);
  }, 20);
  const before = process.memoryUsage().rss;
  let taken = 0;
  api.node.writeFile = async (_id, _write, bytes) => {
    for await (const chunk of bytes) taken += chunk.length;
    return { size: taken, sha256: "0".repeat(64) };
  };
  assert.equal((await api.call("PUT", `${path}?path=/big`, { body: blocks() })).json.size, total);
  api.node.content = blocks;
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  let received = 0;
  await new Promise<void>((resolve, reject) => {
    http.get({ hostname, port, path: `${path}?path=/big`, headers }, (response) => {
      response.on("data", (chunk: Buffer) => {
        received += chunk.length;
      });
      response.on("end", resolve);
      response.on("error", reject);
    });
  });
  clearInterval(timer);
  assert.equal(received, total);
  assert.ok(peak - before < 200 * 1024 * 1024, `memory grew by ${Math.round((peak - before) / 1024 ** 2)} MiB`);
});

test("a reader that stops stalls the source, not the server's memory", async () => {
  await using api = await rig();
  const path = await files(api);
  let produced = 0;
  const stalled = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  api.node.content = async function* () {
    let quiet: NodeJS.Timeout | undefined;
    try {
      for (;;) {
        clearTimeout(quiet);
        quiet = setTimeout(() => stalled.resolve(), 200);
        produced += 65_536;
        yield Buffer.alloc(65_536);
      }
    } finally {
      clearTimeout(quiet);
      ended.resolve();
    }
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  const request = http.get({ hostname, port, path: `${path}?path=/endless`, headers });
  request.on("error", () => undefined);
  await new Promise<http.IncomingMessage>((resolve) =>
    request.once("response", (response: http.IncomingMessage) => {
      response.on("error", () => undefined);
      response.pause();
      resolve(response);
    }),
  );
  await stalled.promise;
  assert.ok(produced < 32 * 1024 * 1024, `${produced}`);
  request.destroy();
  await ended.promise;
});

test("a listing without end is passed on at the pace of its reader, and ends with it", async () => {
  await using api = await rig();
  const path = await files(api);
  const ended = Promise.withResolvers<void>();
  api.node.listFiles = async function* () {
    try {
      for (;;) yield [{ ...ENTRY, name: Buffer.from("x") }];
    } finally {
      ended.resolve();
    }
  };
  const { hostname, port } = new URL(api.url);
  const headers = { authorization: `Bearer ${api.token}` };
  const request = http.get({ hostname, port, path: `${path}/list?path=/`, headers });
  const response = await new Promise<http.IncomingMessage>((resolve) => request.once("response", resolve));
  assert.equal(response.headers["content-type"], "application/x-ndjson");
  response.destroy();
  await ended.promise;
});

test("changes of one entry reach the node as they were asked for", async () => {
  await using api = await rig();
  const path = await files(api);
  const cases = [
    ["chmod?path=/a&mode=4755", "chmod 2541"],
    ["chown?path=/a&owner=1000:5", "chown 1000:5"],
    ["symlink?path=/a&target=../b%20c&parents=true", "symlink ../b c true"],
    ["move?path=/a&to=/b", "move /b true false"],
    ["move?path=/a&to=/b&replace=false", "move /b false false"],
  ];
  for (const [query, call] of cases) {
    assert.equal((await api.call("POST", `${path}/${query}`)).status, 204);
    assert.equal(api.node.calls.at(-1), `changeFile ${call}`);
  }
});

test("changes that lack something or have too much are refused by name", async () => {
  await using api = await rig();
  const path = await files(api);
  const cases: readonly (readonly [query: string, message: RegExp])[] = [
    ["chmod?path=/a", /mode/],
    ["chmod?path=/a&mode=9", /mode must match/],
    ["chown?path=/a", /owner/],
    ["chown?path=/a&owner=", /owner/],
    ["symlink?path=/a", /target/],
    ["symlink?path=/a&target=", /target is empty/],
    ["symlink?path=/a&target=%00", /NUL/],
    ["move?path=/a", /to/],
    ["move?path=/a&to=b", /to must be an absolute path/],
    ["move?path=/a&to=/b&recursive=true", /unknown key/],
  ];
  for (const [query, message] of cases) {
    const { status, json } = await api.call("POST", `${path}/${query}`);
    assert.equal(status, 400, query);
    assert.match(json.error.message, message);
  }
  assert.match((await api.call("GET", `${path}/list?path=/&depth=65`)).json.error.message, /depth/);
});

test("the bytes of a file are followed by trailers that say what they were", async () => {
  await using api = await rig();
  const path = await files(api);
  await api.call("PUT", `${path}?path=/a`, { body: "abc" });
  const { trailers } = await api.call("GET", `${path}?path=/a`);
  assert.equal(trailers["x-dsec-size"], "3");
  assert.equal(trailers["x-dsec-sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});
