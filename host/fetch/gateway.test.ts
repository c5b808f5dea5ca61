import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { type Gateway, openGateway } from "./gateway.ts";
import { isReachable, parseNetworks } from "./internal.ts";

const NONE = parseNetworks("");
const ip = (...bytes: readonly number[]) => bytes.join(".");

/** A server on loopback that counts who asks. */
async function serving() {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? "");
    if (request.url === "/away") response.writeHead(302, { location: "http://169.254.1.1/inner" });
    response.end(`you asked ${request.headers.host}`);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    ...{ asked, port },
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** Node's own client of HTTP through the gateway, or past it. */
async function ask(gateway: Gateway, script: string): Promise<string> {
  const [first = "", ...rest] = [...gateway.words, process.execPath, "--input-type=module", "-e", script];
  const { stdout } = await promisify(execFile)(first, rest, { env: { ...process.env, ...gateway.env } });
  return stdout.trim();
}

const request = (method: string, path: string, then: string) => `
  import { request } from "node:http";
  const out = request({ host: "127.0.0.1", port: 3128, method: "${method}", path: "${path}", headers: { host: "x" } });
  out.on("response", async (reply) => console.log(reply.statusCode, Buffer.concat(await reply.toArray()).toString()));
  out.on("connect", (reply, socket) => { ${then} console.log(reply.statusCode); socket.destroy(); });
  out.end();`;

describe("addresses inside networks", () => {
  test("are told from those outside, in every form they have", () => {
    for (const address of ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111"]) {
      assert.ok(isReachable(address, NONE), address);
    }
    const internal = [
      "127.0.0.1",
      "127.9.9.9",
      "0.0.0.0",
      ip(10, 1, 2, 3),
      ip(172, 16, 0, 1),
      ip(192, 168, 1, 1),
      "169.254.169.254",
      "100.64.0.1",
      "255.255.255.255",
      "224.0.0.1",
    ];
    const six = [
      "::",
      "::1",
      "::ffff:127.0.0.1",
      `::ffff:${ip(10, 0, 0, 1)}`,
      "fe80::1",
      "fc00::1",
      "64:ff9b::7f00:1",
      "2002:7f00:1::",
      "ff02::1",
    ];
    for (const address of [...internal, ...six, "localhost", "", "1.1.1"])
      assert.ok(!isReachable(address, NONE), address);
  });

  test("are reachable where an operator opened their network, and what is no network is refused", () => {
    const open = parseNetworks("10.1.0.0/16, 192.168.1.5/32,fd00::/8");
    for (const address of [ip(10, 1, 255, 1), ip(192, 168, 1, 5), "fd12::1"])
      assert.ok(isReachable(address, open), address);
    for (const address of [ip(10, 2, 0, 1), ip(192, 168, 1, 6), "fc00::1"])
      assert.ok(!isReachable(address, open), address);
    for (const bad of ["10.0.0.0/33", "10/8", "x", "::1/129", "1.1.1.1/", "1.1.1.1/-1"]) {
      assert.throws(() => parseNetworks(bad), { kind: "InvalidArgument" }, bad);
    }
  });
});

describe("a program behind a gateway", () => {
  test("reaches nothing but the gateway, which lets through what is open", async () => {
    await using server = await serving();
    await using gateway = await openGateway(parseNetworks("127.0.0.1"));
    const url = `http://127.0.0.1:${server.port}/x`;
    assert.equal(await ask(gateway, request("GET", url, "")), `200 you asked 127.0.0.1:${server.port}`);
    assert.equal(await ask(gateway, request("CONNECT", `127.0.0.1:${server.port}`, "")), "200");
    const direct = `fetch("${url}").catch((error) => console.log(error.cause.code));`;
    assert.equal(await ask(gateway, direct), "ECONNREFUSED");
    assert.deepEqual(server.asked, ["/x"]);
  });

  test("is refused what is not, by address and by name, and the error says which", async () => {
    await using server = await serving();
    await using gateway = await openGateway(NONE);
    for (const host of ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"]) {
      assert.match(await ask(gateway, request("GET", `http://${host}:${server.port}/`, "")), /^403/, host);
      assert.equal(await ask(gateway, request("CONNECT", `${host}:${server.port}`, "")), "403", host);
    }
    await assert.rejects(gateway.check("localhost"), {
      kind: "PermissionDenied",
      message: /^localhost is an address inside/,
    });
    await gateway.check("no-such-host.invalid");
    assert.deepEqual(server.asked, []);
  });
});
