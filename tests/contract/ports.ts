import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import * as http from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { crc32 } from "node:zlib";
import type { Connection, Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { installProgram, output } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

const MIB = 1024 * 1024;
const DOMAIN = "ports.test";
const PORTS = { echo: 7, http: 80, sink: 9 } as const;

/** Servers in a sandbox are reached over HTTP, WebSocket and plain connections. */
export function portsContract(backend: ContractBackend): void {
  describe(`ports of a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode({ words: [`--port-domain=${DOMAIN}`] });
      sandbox = await backend.create(node, { resources: { memoryMiB: 256, pids: 2048 } });
      await installProgram(sandbox, join(import.meta.dirname, "testdata/server.c"), "/tmp/server");
      for (const [kind, port] of Object.entries(PORTS)) {
        await sandbox.start(["/tmp/server", kind, String(port)]);
        await sandbox.ports.wait(port, { timeoutMs: 20_000 });
      }
    });
    after(() => node[Symbol.asyncDispose]());

    const get = (path: string, options: http.RequestOptions = {}) => ask(node, sandbox, path, options);
    listening(() => sandbox);
    overHttp(() => ({ node, sandbox }), get);
    connections(() => sandbox);
    endings(backend, () => ({ node, sandbox }), get);
  });
}

function listening(sandbox: () => Sandbox): void {
  test("who listens is told; a port that nobody listens on is waited for without being connected to", async () => {
    const ports = (await sandbox().ports.list()).map(({ port }) => port);
    for (const port of Object.values(PORTS)) assert.ok(ports.includes(port), String(port));
    await assert.rejects(sandbox().ports.wait(4000, { timeoutMs: 20 }), { name: "TimeoutError" });
    const waiting = sandbox().ports.wait(4000, { timeoutMs: 60_000 });
    const late = await sandbox().start("nc -l -p 4000 > /tmp/heard");
    await waiting;
    using connection = await sandbox().ports.connect(4000);
    await connection.write("the first that it hears");
    connection.end();
    await late.wait();
    assert.equal(await sandbox().files.readText("/tmp/heard"), "the first that it hears");
  });

  test("a port that nobody listens on is PortFailed, and says what to do", async () => {
    await assert.rejects(sandbox().ports.connect(4001), (error: Error & { kind?: string; hint?: string }) => {
      assert.equal(error.kind, "PortFailed");
      assert.match(error.hint ?? "", /start a server/);
      return true;
    });
  });
}

type Get = (path: string, options?: http.RequestOptions) => Promise<http.IncomingMessage>;

function overHttp(of: () => { readonly node: TestNode; readonly sandbox: Sandbox }, get: Get): void {
  test("the platform's token is not in what the server sees", async () => {
    const { node } = of();
    const text = await textOf(await get("/head", { headers: { "dsec-forward-authorization": "Bearer own" } }));
    assert.ok(!text.includes(node.token));
    assert.match(text, /authorization: Bearer own\r\n/);
    assert.match(text, /x-forwarded-for: 127\.0\.0\.1\r\n/);
  });

  test("a port has a host of its own, which a link opens once", async () => {
    const { node, sandbox } = of();
    const link = new URL(await sandbox.ports.open(PORTS.http));
    assert.equal(link.hostname, `${PORTS.http}-${sandbox.id}.${DOMAIN}`);
    const ask = async (path: string, headers: http.OutgoingHttpHeaders) => {
      const request = http.get(node.url + path, { headers: { host: link.host, ...headers }, agent: false });
      return ((await once(request, "response")) as [http.IncomingMessage])[0];
    };
    const entered = await ask(link.pathname + link.search, {});
    assert.deepEqual([entered.statusCode, entered.headers.location], [303, "/"]);
    const cookie = entered.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const head = await textOf(await ask("/head", { cookie }));
    assert.match(head, new RegExp(`host: ${link.host}`));
    assert.ok(!head.includes(cookie));
    for (const each of [await ask(link.pathname + link.search, {}), await ask("/head", {})]) {
      assert.equal(each.resume().statusCode, 401);
    }
  });

  test("100 MB come down whole", async () => {
    const size = 100 * MIB;
    const piece = Buffer.from(Array.from({ length: 65_536 }, (_, at) => at % 251));
    let [expected, found, bytes] = [0, 0, 0];
    for (let at = 0; at < size; at += piece.length) expected = crc32(piece, expected);
    for await (const chunk of await get(`/bytes/${size}`)) {
      found = crc32(chunk, found);
      bytes += chunk.length;
    }
    assert.deepEqual([bytes, found], [size, expected]);
  });

  test("100 MB go up whole", async () => {
    const piece = randomBytes(MIB);
    let sum = 0;
    const request = begin(of().node, of().sandbox, "/sum", {
      method: "POST",
      headers: { "content-length": 100 * MIB },
    });
    for (let count = 0; count < 100; count++) {
      sum = crc32(piece, sum);
      if (!request.write(piece)) await once(request, "drain");
    }
    request.end();
    const [incoming] = (await once(request, "response")) as [http.IncomingMessage];
    assert.equal(await textOf(incoming), String(sum));
  });

  test("events come as they happen, and a long-poll is not cut", async () => {
    const { sandbox } = of();
    const polling = get("/poll").then(textOf);
    const events = (await get("/events"))[Symbol.asyncIterator]();
    for (const number of [1, 2, 3]) {
      const event = events.next();
      await sandbox.files.write(`/tmp/event-${number}`, "");
      assert.equal(String((await event).value), "data: x\n\n");
    }
    assert.equal((await events.next()).done, true);
    assert.equal(await polling, "at last");
  });

  test("a WebSocket's handshake is the server's, and then bytes pass both ways", async () => {
    const headers = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-key": "k" };
    const request = begin(of().node, of().sandbox, "/socket", { headers });
    request.end();
    const [incoming, socket] = (await once(request, "upgrade")) as [http.IncomingMessage, Socket];
    assert.deepEqual([incoming.statusCode, incoming.headers["sec-websocket-accept"]], [101, "x"]);
    socket.write("frames");
    assert.equal(String((await once(socket, "data"))[0]), "frames");
    socket.destroy();
    const refused = begin(of().node, of().sandbox, "/elsewhere", { headers });
    refused.end();
    const [answer] = (await once(refused, "response")) as [http.IncomingMessage];
    assert.deepEqual([answer.statusCode, await textOf(answer)], [404, "nothing here"]);
  });
}

function connections(sandbox: () => Sandbox): void {
  test("each side of a connection closes for itself", async () => {
    using connection = await sandbox().ports.connect(PORTS.echo);
    const sent = randomBytes(4 * MIB);
    const receiving = all(connection);
    for (let at = 0; at < sent.length; at += 65_536) await connection.write(sent.subarray(at, at + 65_536));
    connection.end();
    assert.ok((await receiving).equals(sent));
  });

  test("200 connections at once, and a reader that stands still keeps none of them waiting", async () => {
    using stuck = await sandbox().ports.connect(PORTS.sink);
    const filling = fill(stuck);
    const echoes = Array.from({ length: 200 }, async (_, index) => {
      using connection = await sandbox().ports.connect(PORTS.echo);
      await connection.write(`connection ${index}`);
      connection.end();
      assert.equal((await all(connection)).toString(), `connection ${index}`);
    });
    await Promise.all(echoes);
    stuck[Symbol.dispose]();
    await filling;
  });
}

function endings(
  backend: ContractBackend,
  of: () => { readonly node: TestNode; readonly sandbox: Sandbox },
  get: Get,
): void {
  test("a reset of the server breaks the answer, and is no end", async () => {
    // Whether the part still arrives or not, it is not taken for the whole.
    await assert.rejects(async () => textOf(await get("/broken")), /aborted|ECONNRESET|hang up/);
  });

  test("a client that leaves leaves nothing in the sandbox", async () => {
    const { sandbox } = of();
    const before = await servers(sandbox);
    const request = begin(of().node, sandbox, "/bytes/1000000000", {});
    request.end();
    const [incoming] = (await once(request, "response")) as [http.IncomingMessage];
    assert.ok((await servers(sandbox)) > before);
    request.destroy();
    incoming.on("error", () => undefined);
    while ((await servers(sandbox)) > before);
  });

  test("a sandbox that is removed breaks its connections", async () => {
    const { node } = of();
    const other = await backend.create(node);
    await other.start("nc -l -p 80 -e sleep 600");
    await other.ports.wait(80, { timeoutMs: 20_000 });
    using connection = await other.ports.connect(80);
    const rest = assert.rejects(all(connection), { name: "TransportError" });
    await other.remove();
    await rest;
  });

  test("without a token that is valid nothing is connected", async () => {
    const { node, sandbox } = of();
    const raw = connect(Number(new URL(node.url).port), "127.0.0.1");
    raw.write(
      `GET /v1/sandboxes/${sandbox.id}/ports/80/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dsec_x\r\nConnection: close\r\n\r\n`,
    );
    let reply = "";
    for await (const chunk of raw) reply += chunk;
    assert.match(reply, /^HTTP\/1.1 401 /);
  });

  test("kill -9 of the node ends connections on both sides; the next node makes new ones, and nothing of the old ones stays", async () => {
    const { node, sandbox } = of();
    const connection = await sandbox.ports.connect(PORTS.echo);
    await connection.write("x");
    // A dead process can tell a client nothing: whether its connection breaks or ends is the kernel's to say.
    const over = all(connection).catch(() => undefined);
    const before = await servers(sandbox);
    await node.kill();
    await over;
    await node.start();
    const again = node.client.sandboxes.use(sandbox.id);
    using fresh = await again.ports.connect(PORTS.echo);
    await fresh.write("hello");
    fresh.end();
    assert.equal((await all(fresh)).toString(), "hello");
    while ((await servers(again)) >= before);
  });
}

/** Processes of servers: one for each connection that is open. */
async function servers(sandbox: Sandbox): Promise<number> {
  return Number(await output(sandbox, "grep -l ^Name:.server /proc/[0-9]*/status 2>/dev/null | wc -l"));
}

/** Writes until the connection is broken. */
async function fill(connection: Connection): Promise<void> {
  try {
    for (;;) await connection.write(Buffer.alloc(65_536));
  } catch {
    // As it should.
  }
}

async function all(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function textOf(incoming: http.IncomingMessage): Promise<string> {
  return (await all(incoming)).toString();
}

function begin(node: TestNode, sandbox: Sandbox, path: string, options: http.RequestOptions): http.ClientRequest {
  const headers = { ...options.headers, authorization: `Bearer ${node.token}` };
  return http.request(sandbox.ports.url(PORTS.http, path), { ...options, headers, agent: false });
}

async function ask(
  node: TestNode,
  sandbox: Sandbox,
  path: string,
  options: http.RequestOptions,
): Promise<http.IncomingMessage> {
  const request = begin(node, sandbox, path, options);
  request.end();
  return ((await once(request, "response")) as [http.IncomingMessage])[0];
}
