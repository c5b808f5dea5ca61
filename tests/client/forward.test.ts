import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { create, installProgram, startNodeWithBase } from "../support/sandbox.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");

describe("dsec forward", { timeout: 120_000 }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
    await installProgram(sandbox, join(import.meta.dirname, "../contract/testdata/server.c"), "/tmp/server");
    await sandbox.start(["/tmp/server", "echo", "80"]);
    await sandbox.ports.wait(80, { timeoutMs: 20_000 });
  });
  after(() => node[Symbol.asyncDispose]());

  /** A forwarding process and the local ports that it has said. */
  async function forwarding(
    ...words: string[]
  ): Promise<{ readonly child: ChildProcess; readonly ports: number[]; readonly errors: () => string }> {
    const env = { ...process.env, ...node.env };
    const child = spawn(process.execPath, [ENTRY, "--json", "forward", sandbox.id, ...words], { env });
    let [said, errors] = ["", ""];
    child.stderr.on("data", (chunk) => {
      errors += chunk;
    });
    while (said.split("\n").length <= words.length) said += String((await once(child.stdout, "data"))[0]);
    const lines = said.trim().split("\n");
    return { child, ports: lines.map((line) => JSON.parse(line).local.port as number), errors: () => errors };
  }

  async function echoed(port: number, text: string): Promise<string> {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.end(text);
    let reply = "";
    for await (const chunk of socket) reply += chunk;
    return reply;
  }

  test("many connections over several ports, each with its own ends; Ctrl-C ends it cleanly", async () => {
    const { child, ports } = await forwarding(":80", "0:80");
    assert.equal(new Set(ports).size, 2);
    const texts = Array.from({ length: 40 }, (_, index) => `text ${index} ${"x".repeat(index * 10_000)}`);
    const replies = await Promise.all(texts.map((text, index) => echoed(ports[index % 2] ?? 0, text)));
    assert.deepEqual(replies, texts);
    const open = connect(ports[0] ?? 0, "127.0.0.1");
    open.on("error", () => undefined);
    await once(open, "connect");
    const closed = once(open, "close");
    child.kill("SIGINT");
    const [status] = await once(child, "exit");
    await closed;
    assert.equal(status, 0);
  });

  test("a port of the sandbox that refuses breaks its connection, and forwarding goes on", async () => {
    const { child, ports, errors } = await forwarding(":81", ":80");
    await assert.rejects(echoed(ports[0] ?? 0, "x"), { code: "ECONNRESET" });
    assert.equal(await echoed(ports[1] ?? 0, "y"), "y");
    assert.match(errors(), /port 81: nothing in the sandbox takes connections/);
    child.kill("SIGTERM");
    await once(child, "exit");
  });

  test("dsec ports lists who listens, waits with a limit, and says why there is no link", async () => {
    const listed = await dsec(node, ["ports", sandbox.id, "--wait", "80"]);
    assert.deepEqual([listed.status, /^80 +0\.0\.0\.0$/m.test(listed.stdout)], [0, true], listed.stdout);
    const json = await dsec(node, ["ports", sandbox.id, "--json"]);
    assert.deepEqual(JSON.parse(json.stdout), { listeners: [{ port: 80, address: "0.0.0.0" }] });
    const late = await dsec(node, ["ports", sandbox.id, "--wait", "81", "--timeout", "20ms"]);
    assert.deepEqual([late.status, /nobody listens on port 81/.test(late.stderr)], [125, true], late.stderr);
    const link = await dsec(node, ["ports", sandbox.id, "--link", "80"]);
    assert.deepEqual([link.status, /--port-domain/.test(link.stderr)], [125, true], link.stderr);
    const idle = await dsec(node, ["ports", sandbox.id, "--timeout", "1s"]);
    assert.deepEqual([idle.status, /add --wait/.test(idle.stderr)], [125, true], idle.stderr);
    const bad = await dsec(node, ["ports", sandbox.id, "--wait", "x"]);
    assert.deepEqual([bad.status, /is not a port/.test(bad.stderr)], [125, true], bad.stderr);
  });

  test("a local port in use, a word that is no pair, and a sandbox that is not there are refused", async () => {
    const taken = createServer().listen({ port: 0, host: "127.0.0.1" });
    await once(taken, "listening");
    const address = taken.address();
    assert.ok(typeof address === "object" && address !== null);
    const used = await dsec(node, ["forward", sandbox.id, `${address.port}:80`]);
    assert.deepEqual([used.status, /is in use\nhint: /.test(used.stderr)], [125, true]);
    taken.close();
    for (const word of ["80:", "a:80", "80:0", "1:65536", "70000:80", "1:2:3"]) {
      const { status, stderr } = await dsec(node, ["forward", sandbox.id, word]);
      assert.deepEqual([status, /is not LOCAL:PORT/.test(stderr)], [125, true], stderr);
    }
    const other = await dsec(node, ["forward", `${sandbox.id.slice(0, -1)}z`, ":80"]);
    assert.deepEqual([other.status, /no sandbox/.test(other.stderr)], [125, true], other.stderr);
  });
});
