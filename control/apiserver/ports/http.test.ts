import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { bridgePort } from "../../test-support/port-bridge.ts";
import { type CallOptions, type Rig, rig } from "../../test-support/rig.ts";

/** A server that stands for one in a sandbox. */
async function listening<S extends Server | http.Server>(server: S): Promise<S & { readonly port: number }> {
  server.listen({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  return Object.assign(server, { port: (server.address() as AddressInfo).port });
}

/** One that answers every connection with these bytes, and ends or resets it then. */
function saying(bytes: string, end: "end" | "reset" = "end"): Promise<Server & { readonly port: number }> {
  return listening(
    createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => {
        if (end === "end") socket.end(bytes);
        else socket.write(bytes, () => setImmediate(() => socket.resetAndDestroy()));
      });
    }),
  );
}

async function received(request: http.IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

let api: Rig;
let id: string;
let root: string;

before(async () => {
  api = await rig();
  api.node.port = bridgePort;
  id = await api.sandbox();
  root = `/v1/sandboxes/${id}/ports`;
});
after(() => api[Symbol.asyncDispose]());

function ask(port: number, method: string, path: string, options: CallOptions = {}) {
  return api.call(method, `${root}/${port}${path}`, options);
}

/** Bytes as they are on a connection of their own; resolves with everything that came back. */
async function exchange(text: string): Promise<string> {
  const socket = connect(Number(new URL(api.url).port), "127.0.0.1");
  let reply = "";
  socket.on("data", (chunk) => {
    reply += chunk;
  });
  socket.on("error", () => undefined);
  socket.write(text);
  await once(socket, "close");
  return reply;
}

function head(port: number, lines: readonly string[] = [], method = "GET", path = "/"): string {
  const own = [`Host: x`, `Authorization: Bearer ${api.token}`, ...lines].join("\r\n");
  return `${method} ${root}/${port}${path} HTTP/1.1\r\n${own}\r\n\r\n`;
}

describe("what reaches the server in the sandbox", () => {
  test("any method, the path and query byte for byte, and the body", async () => {
    await using server = await listening(
      http.createServer(async (request, response) => {
        response.end(JSON.stringify([request.method, request.url, await received(request)]));
      }),
    );
    const path = "/a%2Fb//c/../%zz?x=%E4&&y=/";
    for (const method of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
      const hasBody = method !== "GET" && method !== "HEAD";
      // Node's client does not frame the bodies of some methods by itself.
      const options = hasBody ? { body: "the body", headers: { "content-length": "8" } } : {};
      const { status, bytes } = await ask(server.port, method, path, options);
      assert.equal(status, 200, method);
      if (method !== "HEAD") assert.deepEqual(JSON.parse(bytes.toString()), [method, path, hasBody ? "the body" : ""]);
    }
    assert.equal(JSON.parse((await ask(server.port, "GET", "")).bytes.toString())[1], "/");
    assert.equal(JSON.parse((await ask(server.port, "GET", "?q")).bytes.toString())[1], "/?q");
  });

  test("the platform's credential never does, and nobody's word for who asks", async () => {
    await using server = await listening(
      http.createServer((request, response) => response.end(JSON.stringify(request.rawHeaders))),
    );
    const { bytes } = await ask(server.port, "GET", "/", {
      headers: {
        cookie: "session=1",
        "dsec-forward-authorization": "Basic YTpi",
        "dsec-timeout-ms": "10000",
        "x-forwarded-for": "192.0.2.1",
        forwarded: "for=192.0.2.1",
        "x-real-ip": "192.0.2.1",
        connection: "close, x-secret",
        "x-secret": "1",
        "x-own": "kept",
        te: "trailers",
      },
    });
    const text = bytes.toString();
    assert.ok(!text.includes(api.token));
    assert.ok(!text.includes("192.0.2.1"));
    const raw = JSON.parse(text) as string[];
    const headers = Object.fromEntries(
      raw.flatMap((name, at) => (at % 2 === 0 ? [[name.toLowerCase(), raw[at + 1]]] : [])),
    );
    assert.deepEqual(headers, {
      host: `localhost:${server.port}`,
      authorization: "Basic YTpi",
      "x-own": "kept",
      "x-forwarded-for": "127.0.0.1",
      "x-forwarded-host": new URL(api.url).host,
      "x-forwarded-proto": "http",
      "x-forwarded-prefix": `${root}/${server.port}`,
      connection: "close",
    });
  });

  test("chunked bodies and trailers, both ways", async () => {
    await using server = await listening(
      http.createServer(async (request, response) => {
        response.writeHead(200, { trailer: "x-sum" });
        for await (const chunk of request) response.write(chunk);
        response.addTrailers({ "x-sum": String(request.trailers["x-count"]) });
        response.end();
      }),
    );
    const chunks = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Count: 11\r\n\r\n";
    const reply = await exchange(
      head(server.port, ["Transfer-Encoding: chunked", "Trailer: X-Count", "Connection: close"], "POST") + chunks,
    );
    assert.match(reply, /^HTTP\/1.1 200 OK\r\n/);
    assert.match(reply, /hello[\s\S]* world[\s\S]*x-sum: 11\r\n\r\n$/);
  });

  test("trailers bring nothing that a head may not", async () => {
    await using server = await listening(
      http.createServer(async (request, response) => {
        response.writeHead(200, { trailer: "x-heard" });
        await request.resume().toArray();
        const said = { "set-cookie": "a=b", "dsec-error": "Internal", "clear-site-data": "*" };
        response.addTrailers({ "x-heard": Object.keys(request.trailers).join(), ...said });
        response.end("body");
      }),
    );
    const trailers = "0\r\nX-Own: 1\r\nX-Forwarded-For: 192.0.2.1\r\nAuthorization: Basic YTpi\r\nHost: x\r\n\r\n";
    const lines = ["Transfer-Encoding: chunked", "Trailer: X-Own", "Connection: close"];
    const reply = await exchange(head(server.port, lines, "POST") + trailers);
    assert.match(reply, /0\r\nx-heard: x-own\r\n\r\n$/);
  });

  test("a body is sent when the server says so, or not at all", async () => {
    const server = http.createServer((_, response) => response.end("unexpected"));
    server.on("checkContinue", (request, response) => {
      if (request.url === "/no") response.writeHead(417).end("not wanted");
      else {
        response.writeContinue();
        request.pipe(response);
      }
    });
    await using inside = await listening(server);
    const lines = ["Expect: 100-continue", "Content-Length: 4", "Connection: close"];
    assert.match(await exchange(head(inside.port, lines, "POST", "/no")), /^HTTP\/1.1 417 [\s\S]*not wanted/);
    const socket = connect(Number(new URL(api.url).port), "127.0.0.1");
    socket.write(head(inside.port, lines, "POST", "/yes"));
    const [first] = await once(socket, "data");
    assert.equal(String(first), "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write("body");
    let rest = "";
    for await (const chunk of socket) rest += chunk;
    assert.match(rest, /^HTTP\/1.1 200 OK[\s\S]*body/);
  });
});

describe("what comes back", () => {
  test("status, repeated headers and bodies as they are; nothing that belongs to the API's origin", async () => {
    const reply = [
      "HTTP/1.1 299 Fine So",
      "X-Twice: 1",
      "X-Twice: 2",
      "Set-Cookie: a=b",
      "Strict-Transport-Security: max-age=1",
      "Clear-Site-Data: *",
      "Dsec-Error: Forged",
      "Content-Security-Policy: default-src 'self'",
      "Content-Length: 4",
      "",
      "body",
    ];
    await using server = await saying(reply.join("\r\n"));
    const text = await exchange(head(server.port, ["Connection: close"]));
    assert.match(text, /^HTTP\/1.1 299 Fine So\r\n/);
    assert.match(text, /X-Twice: 1\r\nX-Twice: 2\r\n/);
    assert.doesNotMatch(text, /set-cookie|strict-transport|clear-site|dsec-error/i);
    assert.match(text, /default-src 'self'\r\n[\s\S]*content-security-policy: sandbox /i);
    assert.match(text, /\r\n\r\nbody$/);
  });

  test("answers without a body end at their head", async () => {
    await using server = await listening(
      http.createServer((request, response) => {
        if (request.method === "HEAD") response.writeHead(200, { "content-length": 1_000 });
        else response.writeHead(Number(request.url?.slice(1)));
        response.end();
      }),
    );
    const answer = await ask(server.port, "HEAD", "/");
    assert.deepEqual([answer.status, answer.headers["content-length"], answer.bytes.length], [200, "1000", 0]);
    for (const status of [204, 304]) assert.equal((await ask(server.port, "GET", `/${status}`)).status, status);
  });

  test("the head comes before a body that has not begun, and events as they happen", async () => {
    const open = Promise.withResolvers<http.ServerResponse>();
    await using server = await listening(
      http.createServer((_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        open.resolve(response);
      }),
    );
    const request = http.get(`${api.url}${root}/${server.port}/`, {
      headers: { authorization: `Bearer ${api.token}` },
    });
    const [incoming] = (await once(request, "response")) as [http.IncomingMessage];
    for (const event of ["data: 1\n\n", "data: 2\n\n"]) {
      (await open.promise).write(event);
      assert.equal(String((await once(incoming, "data"))[0]), event);
    }
    request.destroy();
    await once(await open.promise, "close");
  });

  test("a part never looks like the whole: what breaks off breaks", async () => {
    const short = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    const open = "HTTP/1.1 200 OK\r\n\r\nhalf";
    for (const [bytes, end] of [
      [short, "end"],
      [short, "reset"],
      [chunked, "end"],
      [chunked, "reset"],
      [open, "reset"],
    ] as const) {
      await using server = await saying(bytes, end);
      await assert.rejects(ask(server.port, "GET", "/"), /aborted|socket hang up|ECONNRESET/, `${bytes} ${end}`);
    }
    await using whole = await saying(open, "end");
    assert.equal((await ask(whole.port, "GET", "/")).bytes.toString(), "half");
  });

  const strange = {
    "a reason that no reply may have": "HTTP/1.1 200 a\x01b\r\nContent-Length: 1\r\n\r\nx",
    "a status that is none": "HTTP/1.1 000 OK\r\nContent-Length: 1\r\n\r\nx",
    "a header that goes on": "HTTP/1.1 200 OK\r\nX: a\r\n Set-Cookie: b=c\r\nContent-Length: 1\r\n\r\nx",
    "a carriage return in a header": "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b=c\r\nContent-Length: 1\r\n\r\nx",
  };
  for (const [what, bytes] of Object.entries(strange)) {
    test(`${what} breaks nothing but the call`, async () => {
      await using server = await saying(bytes);
      const reply = await exchange(head(server.port) + head(server.port, ["Connection: close"], "GET", "/next"));
      const heads = reply.match(/HTTP\/1\.1 \d+ [^\r]*\r\n/g);
      assert.deepEqual(heads, ["HTTP/1.1 502 Bad Gateway\r\n", "HTTP/1.1 502 Bad Gateway\r\n"], reply);
      assert.ok(!/^set-cookie/im.test(reply), reply);
    });
  }

  test("nobody listening, silence and what is not HTTP are PortFailed, told from answers by a header", async () => {
    const server = await saying("");
    const failures: (readonly [string, RegExp])[] = [
      ["", /broke off/],
      ["SSH-2.0-x\r\n", /HTTP/],
      ["HTTP/1.1 101 Yes\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", /broke off/],
      ["HTTP/1.1 101 Yes\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", /broke off/],
      ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", /HTTP/],
      ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody", /HTTP/],
      [`HTTP/1.1 200 OK\r\nX-Flood: ${"x".repeat(100_000)}\r\n\r\n`, /HTTP/],
      [`HTTP/1.1 200 OK\r\n${"X-F: y\r\n".repeat(10_000)}\r\n`, /HTTP/],
    ];
    for (const [bytes, message] of failures) {
      await using inside = await saying(bytes);
      const { status, json, headers } = await ask(inside.port, "GET", "/");
      assert.deepEqual([status, json.error.kind, headers["dsec-error"]], [502, "PortFailed", "PortFailed"], bytes);
      assert.match(json.error.message, message);
    }
    await new Promise((resolve) => server.close(resolve));
    const refused = await ask(server.port, "GET", "/");
    assert.deepEqual([refused.status, refused.json.error.kind], [502, "PortFailed"]);
  });

  test("an answer before the end of the upload is passed on, and the connection is not stuck", async () => {
    await using server = await saying("HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    const big = async function* () {
      for (let count = 0; count < 64; count++) yield Buffer.alloc(64 * 1024);
    };
    const { status, bytes } = await ask(server.port, "POST", "/", { body: big() });
    assert.deepEqual([status, bytes.toString()], [413, "no"]);
  });

  test("interim answers are passed on, and a flood of them is not", async () => {
    const hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
    await using server = await saying(`${hint.repeat(1_000)}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`);
    const text = await exchange(head(server.port, ["Connection: close"]));
    assert.equal(text.split("103 Early Hints").length - 1, 16);
    assert.match(text, /HTTP\/1.1 200 OK[\s\S]*ok$/);
  });
});

describe("who may, and for how long", () => {
  test("tokens, projects and ports are checked before anything is connected", async () => {
    const before = api.node.calls.filter((call) => call.startsWith("openPort")).length;
    assert.equal((await ask(80, "GET", "/", { token: null })).status, 401);
    await api.control.iam.createProject("other");
    const token = await api.control.iam.createToken({ name: "eve", project: "other", role: "member" });
    assert.deepEqual([(await ask(80, "GET", "/", { token })).json.error.kind], ["NotFound"]);
    for (const port of ["0", "65536", "99999999999999999999"]) {
      assert.equal((await api.call("GET", `${root}/${port}/`)).json.error.kind, "InvalidArgument");
    }
    assert.equal((await api.call("GET", "/v1/sandboxes/nope/ports/80/")).status, 404);
    assert.equal(api.node.calls.filter((call) => call.startsWith("openPort")).length, before);
  });

  test("requests that could be read in two ways are refused before the server hears of them", async () => {
    let heard = 0;
    await using server = await listening(
      createServer((socket: Socket) => {
        heard += 1;
        socket.destroy();
      }),
    );
    const both = ["Content-Length: 5", "Transfer-Encoding: chunked"];
    const twice = ["Content-Length: 5", "Content-Length: 6"];
    const odd = ["Transfer-Encoding: chunked, identity"];
    for (const lines of [both, twice, odd, ["Content-Length: +5"], [`X-Flood: ${"x".repeat(20_000)}`]]) {
      const reply = await exchange(`${head(server.port, lines, "POST")}0\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n`);
      assert.match(reply, /^HTTP\/1.1 4(?:00|13) /, lines.join());
    }
    assert.equal(heard, 0);
  });

  test("headers that a client calls the connection's cannot change how its body is read", async () => {
    await using server = await listening(
      http.createServer(async (request, response) => response.end(await received(request))),
    );
    const lines = ["Connection: close, content-length, host", "Content-Length: 4"];
    assert.match(await exchange(`${head(server.port, lines, "POST")}body`), /200 OK[\s\S]*body/);
  });

  test("a call without progress ends at its limit; one without a limit waits", async () => {
    await using server = await listening(http.createServer(() => undefined));
    const { status, json } = await ask(server.port, "GET", "/", { headers: { "dsec-timeout-ms": "50" } });
    assert.deepEqual([status, json.error.kind], [504, "DeadlineExceeded"]);
    server.closeAllConnections();
  });

  test("a client that leaves in the middle resets the server's connection", async () => {
    const outcome = Promise.withResolvers<string>();
    await using server = await listening(
      createServer((socket) => {
        socket.once("error", (error: NodeJS.ErrnoException) => outcome.resolve(error.code ?? ""));
        socket.once("end", () => outcome.resolve("end"));
        socket.once("data", () => client.destroy());
      }),
    );
    const client = connect(Number(new URL(api.url).port), "127.0.0.1");
    client.write(`${head(server.port, ["Content-Length: 100"], "POST")}half`);
    assert.equal(await outcome.promise, "ECONNRESET");
  });
});
