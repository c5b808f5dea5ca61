import assert from "node:assert/strict";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { after, beforeEach, describe, test } from "node:test";
import { Caller } from "./caller.ts";
import { DsecError, NotFoundError, TransportError } from "./errors.ts";
import { NodeTransport } from "./node-transport.ts";
import { readOutput } from "./output.ts";
import { Sandboxes } from "./sandboxes.ts";

type Handler = (request: http.IncomingMessage, response: http.ServerResponse) => void;

/** A server on loopback that does to its connections what a script says. */
async function serve(): Promise<{ url: string; handle: (handler: Handler) => void; close: () => Promise<void> }> {
  let current: Handler = (_, response) => response.end();
  const server = http.createServer((request, response) => current(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    handle: (handler) => {
      current = handler;
    },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

const server = await serve();
const transport = new NodeTransport(server.url);
const caller = new Caller({ transport, token: "secret", retries: 3, timeoutMs: 5_000, patienceMs: 60_000 });
after(async () => {
  caller.close();
  await server.close();
});

function fail(response: http.ServerResponse, status: number, kind: string): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(
    JSON.stringify({ error: { kind, message: `it is ${kind}`, hint: "do so", retry: "elsewhere", details: { a: 1 } } }),
  );
}

describe("a call", () => {
  let calls = 0;
  beforeEach(() => {
    calls = 0;
  });

  test("a hidden limit below the configured one: the limit that the server keeps is told", async () => {
    const told: unknown[] = [];
    const listening = new Caller({
      transport,
      token: undefined,
      retries: 0,
      timeoutMs: 5_000,
      patienceMs: 60_000,
      onLimit: (limit) => told.push(limit),
    });
    server.handle((_, response) => response.setHeader("dsec-timeout-ms", "40").end("{}"));
    await listening.json({ method: "GET", path: "/a", timeoutMs: 7_200_000 });
    server.handle((_, response) => fail(response, 404, "NotFound"));
    await assert.rejects(listening.json({ method: "GET", path: "/b" }));
    assert.deepEqual(told, [
      { method: "GET", path: "/a", askedMs: 7_200_000, keptMs: 40 },
      { method: "GET", path: "/b", askedMs: 5_000, keptMs: undefined },
    ]);
  });

  test("carries token, deadline, encoded query and JSON, and gives the reply's JSON", async () => {
    server.handle((request, response) => {
      let body = "";
      request.on("data", (chunk) => {
        body += chunk;
      });
      request.on("end", () => response.end(JSON.stringify({ url: request.url, headers: request.headers, body })));
    });
    const query = { path: Buffer.from([0x2f, 0xff, 0x41]), text: "a b&c", label: ["x=1", "y=2"], absent: undefined };
    const reply = await caller.json<{ url: string; headers: Record<string, string>; body: string }>({
      method: "POST",
      path: "/v1/x",
      query,
      json: { n: 1 },
      timeoutMs: 1234,
    });
    assert.equal(reply.url, "/v1/x?path=%2F%FFA&text=a%20b%26c&label=x%3D1&label=y%3D2");
    assert.equal(reply.headers.authorization, "Bearer secret");
    assert.equal(reply.headers["dsec-timeout-ms"], "1234");
    assert.equal(reply.headers["content-type"], "application/json");
    assert.equal(reply.body, '{"n":1}');
  });

  test("an error of the server becomes its class, with hint, details and retry", async () => {
    server.handle((_, response) => fail(response, 404, "NotFound"));
    await assert.rejects(caller.json({ method: "GET", path: "/" }), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.deepEqual(
        [error.kind, error.hint, error.details, error.retry],
        ["NotFound", "do so", { a: 1 }, "elsewhere"],
      );
      return true;
    });
  });

  test("a reply that is not ours says so instead of inventing a reason", async () => {
    server.handle((_, response) => response.writeHead(502).end("<html>"));
    await assert.rejects(caller.json({ method: "GET", path: "/" }), { kind: "Internal", hint: /apiserver/ });
    server.handle((_, response) => response.end("<html>"));
    await assert.rejects(caller.json({ method: "GET", path: "/" }), { kind: "Internal", message: /not JSON/ });
  });

  test("what may be repeated is repeated when the connection breaks or the server is unavailable", async () => {
    server.handle((request, response) => {
      calls++;
      if (calls === 1) request.socket.destroy();
      else if (calls === 2) fail(response, 503, "Unavailable");
      else response.end("{}");
    });
    assert.deepEqual(await caller.json({ method: "POST", path: "/", json: {}, repeatable: true }), {});
    assert.equal(calls, 3);
  });

  test("what may not be repeated is sent once, and so is a stream", async () => {
    server.handle((request) => {
      calls++;
      request.socket.destroy();
    });
    await assert.rejects(caller.json({ method: "POST", path: "/", json: {} }), TransportError);
    const bytes = (async function* () {
      yield Buffer.from("x");
    })();
    await assert.rejects(caller.json({ method: "PUT", path: "/", bytes, repeatable: true }), TransportError);
    assert.equal(calls, 2);
  });

  test("a final error is not repeated", async () => {
    server.handle((_, response) => {
      calls++;
      fail(response, 507, "NodeFull");
    });
    await assert.rejects(caller.json({ method: "GET", path: "/" }), { kind: "NodeFull", retry: "elsewhere" });
    assert.equal(calls, 1);
  });

  test("a refused connection fails at once and says what to do", async () => {
    const dead = await serve();
    await dead.close();
    const lonely = new Caller({
      transport: new NodeTransport(dead.url),
      token: undefined,
      retries: 3,
      timeoutMs: 5_000,
      patienceMs: 60_000,
    });
    await assert.rejects(lonely.json({ method: "GET", path: "/" }), (error) => {
      assert.ok(error instanceof TransportError);
      assert.match(error.hint ?? "", /dsec up/);
      assert.equal(error.details.refused, true);
      return true;
    });
  });

  test("the signal ends a call with its reason and closes its connection", async () => {
    const closed = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    server.handle((request) => {
      request.on("close", closed.resolve);
      arrived.resolve();
    });
    const controller = new AbortController();
    const call = caller.json({ method: "GET", path: "/", signal: controller.signal });
    await arrived.promise;
    const reason = new Error("enough");
    controller.abort(reason);
    await assert.rejects(call, reason);
    await closed.promise;
    await assert.rejects(caller.json({ method: "GET", path: "/", signal: controller.signal }), reason);
  });

  test("a body that ends early is a failure of the transport, not a short body", async () => {
    server.handle((request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("part", () => request.socket.destroy());
    });
    await assert.rejects(caller.json({ method: "POST", path: "/" }), TransportError);
  });

  test("a source that fails breaks its upload: the server never sees a clean end", async () => {
    const outcome = Promise.withResolvers<string>();
    server.handle((request) => {
      request.on("end", () => outcome.resolve("end"));
      request.on("error", () => outcome.resolve("broken"));
      request.resume();
    });
    const wrong = new DsecError("PermissionDenied", "unreadable");
    const bytes = (async function* () {
      yield Buffer.alloc(10);
      await new Promise((resolve) => setImmediate(resolve));
      throw wrong;
    })();
    await assert.rejects(caller.json({ method: "PUT", path: "/", bytes }), wrong);
    assert.equal(await outcome.promise, "broken");
  });

  test("an upload goes at the pace of the server and keeps no more than what is on its way", async () => {
    const arrived = Promise.withResolvers<http.IncomingMessage>();
    server.handle((request, response) => {
      request.on("end", () => response.end("{}"));
      arrived.resolve(request);
    });
    let sent = 0;
    const bytes = (async function* () {
      for (; sent < 512; sent++) yield Buffer.alloc(256 * 1024);
    })();
    const upload = caller.json({ method: "PUT", path: "/", bytes });
    const request = await arrived.promise;
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(sent < 256, `${sent} of 512 chunks were taken while nobody read`);
    request.resume();
    await upload;
    assert.equal(sent, 512);
  });
});

describe("an output", () => {
  const content = Buffer.from("the whole output of a command, in many small pieces");

  test("that breaks again and again is read to its end, no byte lost or doubled", async () => {
    server.handle((request, response) => {
      const offset = Number(new URL(request.url ?? "", "http://x").searchParams.get("offset"));
      response.writeHead(200, { "x-dsec-offset": String(offset), trailer: "X-Dsec-End" });
      if (offset >= content.length) {
        response.addTrailers({ "X-Dsec-End": "ended" });
        response.end();
        return;
      }
      response.write(content.subarray(offset, offset + 7), () => request.socket.destroy());
    });
    const chunks = await Array.fromAsync(readOutput(caller, "/v1/c", "stdout"));
    assert.equal(Buffer.concat(chunks.map((chunk) => chunk.bytes)).toString(), content.toString());
  });

  test("that never moves on fails instead of trying forever", async () => {
    server.handle((request) => request.socket.destroy());
    const impatient = new Caller({ transport, token: undefined, retries: 0, timeoutMs: 5_000, patienceMs: 20 });
    await assert.rejects(Array.fromAsync(readOutput(impatient, "/v1/c", "stdout")), TransportError);
    server.handle((_, response) => response.end("{}"));
    await impatient.json({ method: "GET", path: "/" });
    server.handle((_, response) => response.end());
    await assert.rejects(Array.fromAsync(readOutput(impatient, "/v1/c", "stdout")), {
      kind: "Unavailable",
      message: /does not say why it ended, for \d+ s now/,
    });
  });
});

describe("a create", () => {
  const sandboxes = new Sandboxes(caller);

  test("that is given up is taken back under the same key", async () => {
    const keys: unknown[] = [];
    const removed: string[] = [];
    const controller = new AbortController();
    server.handle((request, response) => {
      request.resume();
      if (request.method === "DELETE") {
        removed.push(request.url ?? "");
        response.writeHead(204).end();
        return;
      }
      keys.push(request.headers["idempotency-key"]);
      // The first answer never comes: the sandbox may or may not have been made.
      if (keys.length === 1) controller.abort();
      else response.end(JSON.stringify({ id: "sx-a" }));
    });
    await assert.rejects(sandboxes.create({ base: "b" }, { signal: controller.signal }), { name: "AbortError" });
    assert.deepEqual([keys.length, new Set(keys).size, removed], [2, 1, ["/v1/sandboxes/sx-a"]]);
  });

  test("that was refused is not taken back", async () => {
    let calls = 0;
    server.handle((request, response) => {
      request.resume();
      calls++;
      fail(response, 507, "NodeFull");
    });
    await assert.rejects(sandboxes.create({ base: "b" }), { kind: "NodeFull" });
    assert.equal(calls, 1);
  });
});
