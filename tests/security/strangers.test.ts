import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import * as http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { OPERATIONS, type OperationName } from "#api/index.ts";
import { Client, type Command, type Sandbox } from "#sdk";
import { addShell } from "../functions/support.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { tokenOfNew } from "../support/projects.ts";

interface Asked {
  readonly query?: string;
  readonly json?: unknown;
}

/** What each call of the API needs to be understood, where it is about something that belongs to a project. `path`: of a file. */
const REQUESTS: Readonly<Partial<Record<OperationName, Asked>>> = {
  extendSandbox: { json: { maxLifetimeMs: 1 } },
  packSandbox: { json: { name: "stolen" } },
  forkSandbox: { json: { count: 1 } },
  startCommand: { json: { argv: ["rm", "/secret"] } },
  openSession: { json: {} },
  runLine: { json: { line: "rm /secret" } },
  signalCommand: { json: { signal: "KILL" } },
  writeStdin: { query: "?close=true" },
  resizeTerminal: { json: { rows: 1, cols: 1 } },
  powerComputer: { json: { action: "off" } },
  sendInput: { json: { actions: [{ type: "text", text: "x" }] } },
  readFile: { query: "?path=/secret" },
  writeFile: { query: "?path=/secret" },
  removeFile: { query: "?path=/secret" },
  listFiles: { query: "?path=/" },
  statFile: { query: "?path=/secret" },
  makeDirectory: { query: "?path=/made" },
  changeMode: { query: "?path=/secret&mode=0" },
  changeOwner: { query: "?path=/secret&owner=1" },
  makeLink: { query: "?path=/link&target=/" },
  readTree: { query: "?path=/" },
  writeTree: { query: "?path=/" },
  watchFiles: { query: "?path=/" },
  moveFile: { query: "?path=/secret&to=/moved" },
  waitForPort: { query: "?port=80" },
  createPortTicket: { json: { port: 80 } },
  exportTo: { json: { type: "registry", image: "localhost:1/a" } },
  tagArtifact: { json: { target: "stolen" } },
  deriveArtifact: { json: { target: "stolen", kind: "toolkit" } },
};
/** Whose answer is the same for what there never was: nothing is left of it. */
const SILENT: ReadonlySet<string> = new Set(["removeSandbox", "dropFunction"]);
/** About what belongs to no project. */
const EVERYBODYS: ReadonlySet<string> = new Set(["prepareRuntime", "nodeResources"]);

let store: string;
let node: TestNode;
let sandbox: Sandbox;
let command: Command;
let call: string;
let token: string;
let parts: Readonly<Record<string, string>>;
before(async () => {
  store = mkdtempSync(join(tmpdir(), "dsec-store-"));
  node = await startNode({ words: [`--store=${store}`, "--port-domain=ports.test"] });
  await addShell(node);
  sandbox = await node.client.sandboxes.create({ base: "busybox", labels: { whose: "mine" } });
  await sandbox.files.write("/secret", "secret");
  command = await sandbox.start(["sh", "-c", "echo secret; cat"], { stdin: "pipe" });
  const session = await sandbox.session({ name: "mine" });
  call = await node.client.functions.start({ runtime: "sh", code: "echo secret" });
  token = await tokenOfNew(node, "strangers");
  parts = {
    ...{ id: sandbox.id, command: command.id, session: session.name, stream: "stdout", call },
    name: "busybox",
  };
});
after(async () => {
  await node[Symbol.asyncDispose]();
  rmSync(store, { recursive: true });
});

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
}

/** With the stranger's token. */
function send(name: OperationName, path: string, { query = "", json }: Asked): Promise<Answer> {
  const { method, status, body } = OPERATIONS[name];
  const upgrade = { connection: "upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
  const headers = {
    authorization: `Bearer ${token}`,
    ...(json === undefined ? {} : { "content-type": "application/json" }),
    ...(status === 101 ? { ...upgrade, "sec-websocket-key": Buffer.alloc(16).toString("base64") } : {}),
  };
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const request = http.request(new URL(path + query, node.url), { method, headers, agent: false }, async (reply) => {
    const pieces = await Array.fromAsync(reply as AsyncIterable<Buffer>);
    resolve({ status: reply.statusCode, text: Buffer.concat(pieces).toString() });
  });
  request.on("upgrade", (reply, socket) => {
    socket.destroy();
    resolve({ status: reply.statusCode, text: "" });
  });
  request.on("error", reject);
  request.end(body === "bytes" ? "x" : json === undefined ? undefined : JSON.stringify(json));
  return promise;
}

test("what belongs to another project does not exist: for every call of the API", async () => {
  const own = Object.entries(OPERATIONS).filter(([name, { path }]) => path.includes("{") && !EVERYBODYS.has(name));
  assert.ok(own.length > 40);
  for (const [name, { path }] of own) {
    const filled = path.replace(
      /\{(\w+)\}/g,
      (_, part: string) => parts[part] ?? assert.fail(`${path}: what is ${part}?`),
    );
    const { status, text } = await send(name as OperationName, filled, REQUESTS[name as OperationName] ?? {});
    // A call that is not understood is refused before anybody asks whose it is: it needs a request in the table above.
    assert.equal(status, SILENT.has(name) ? 204 : 404, `${name}: ${text}`);
    assert.doesNotMatch(text, /secret/, name);
  }
});

test("calls about many find nothing of another project, and act on none of it", async () => {
  using stranger = new Client({ url: node.url, token, retries: 0 });
  assert.deepEqual(await Array.fromAsync(stranger.sandboxes.list()), []);
  assert.deepEqual(await stranger.artifacts.list(), []);
  const created = await send("createSandbox", OPERATIONS.createSandbox.path, { json: { base: "busybox" } });
  assert.equal(created.status, 404, created.text);
  const removed = await send("removeMany", OPERATIONS.removeMany.path, { query: "?label=whose%3Dmine" });
  assert.deepEqual([removed.status, removed.text], [200, ""]);
  const ran = await send("runMany", OPERATIONS.runMany.path, {
    json: { sandboxes: [sandbox.id], command: { argv: ["rm", "/secret"] } },
  });
  assert.match(ran.text, /"NotFound"/);
});

test("after all of that everything is as it was", async () => {
  assert.equal(await sandbox.files.readText("/secret"), "secret");
  assert.deepEqual(
    (await sandbox.files.list("/")).filter(({ name }) => ["made", "link", "moved"].includes(String(name))),
    [],
  );
  assert.equal((await command.info()).status, undefined);
  assert.deepEqual(
    (await sandbox.sessions()).map(({ name, status }) => [name, status]),
    [["mine", undefined]],
  );
  assert.equal((await node.client.functions.result(call)).run?.stdout, "secret\n");
  assert.deepEqual(
    (await node.client.artifacts.list()).map(({ name }) => name),
    ["busybox"],
  );
  assert.equal((await Array.fromAsync(node.client.sandboxes.list())).length, 1);
});
