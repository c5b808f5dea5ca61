import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocket } from "ws";
import { INPUT_WINDOW_BYTES } from "#api/index.ts";
import { type Rig, rig } from "../../test-support/rig.ts";

type Event = { readonly type: string; readonly error?: { readonly kind: string }; readonly offset?: number };

/** A command that runs on, and the URL to attach to it. */
async function command(api: Rig, query = ""): Promise<string> {
  api.node.program = { stdout: Buffer.from("x"), code: undefined };
  const id = await api.sandbox();
  const { json } = await api.call("POST", `/v1/sandboxes/${id}/commands`, { json: { argv: ["x"], stdin: "pipe" } });
  return `${api.url.replace("http", "ws")}/v1/sandboxes/${id}/commands/${json.id}/attach${query}`;
}

async function open(api: Rig, url: string): Promise<{ socket: WebSocket; next(): Promise<Event | number> }> {
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${api.token}` } });
  const queue: (Event | number)[] = [];
  let wake = () => {};
  const put = (item: Event | number) => {
    queue.push(item);
    wake();
  };
  socket.on("message", (data, isBinary) => {
    if (!isBinary) put(JSON.parse(String(data)) as Event);
  });
  socket.on("close", (code) => put(code));
  await once(socket, "open");
  const next = async () => {
    for (let item = queue.shift(); ; item = queue.shift()) {
      if (item !== undefined) return item;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return { socket, next };
}

/** The node never tells the end, and nothing of the output. */
function quiet(api: Rig): void {
  const forever = (signal: AbortSignal) =>
    new Promise<void>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  let first = true;
  api.node.before = (call, signal) => {
    if (call === "waitCommand" && first) first = false;
    else if (call === "waitCommand") return forever(signal);
    return undefined;
  };
  api.node.chunks = async function* (_, signal) {
    yield { offset: 0, bytes: Buffer.from("x") };
    await forever(signal);
  };
}

test("a message that no client may send ends the attachment with a typed error, and the connection with 1011", async () => {
  await using api = await rig();
  const long = Buffer.alloc(INPUT_WINDOW_BYTES + 9);
  const cases: readonly (readonly [string | Buffer, string])[] = [
    ["{", "InvalidArgument"],
    ['{"type": "dance"}', "InvalidArgument"],
    ['{"type": "resize", "rows": 0, "cols": 1}', "InvalidArgument"],
    ['{"type": "ack", "stream": "stdin", "offset": 1}', "InvalidArgument"],
    [Buffer.alloc(7), "InvalidArgument"],
    [Buffer.alloc(8, 0xff), "InvalidArgument"],
    [Buffer.alloc(9), "FailedPrecondition"],
    [long, "FailedPrecondition"],
  ];
  for (const [message, kind] of cases) {
    quiet(api);
    const { socket, next } = await open(api, await command(api));
    socket.send(message);
    const told = await next();
    assert.ok(typeof told === "object", String(told));
    assert.deepEqual([told.type, told.error?.kind, await next()], ["error", kind, 1011], String(message));
  }
});

test("input that was taken goes to the node in order and is acknowledged; more than the window ends the attachment", async () => {
  await using api = await rig();
  quiet(api);
  const { socket, next } = await open(api, await command(api, "?input=take"));
  assert.deepEqual(await next(), { type: "input-taken", offset: 0 });
  const piece = (offset: number, text: string) => {
    const bytes = Buffer.alloc(8 + text.length);
    bytes.writeBigUInt64LE(BigInt(offset));
    bytes.write(text, 8);
    return bytes;
  };
  socket.send(piece(0, "abc"));
  socket.send(piece(3, "def"));
  for (let offset = 0; offset < 6; ) {
    const event = await next();
    assert.ok(typeof event === "object" && event.type === "input-ack", JSON.stringify(event));
    offset = event.offset ?? 0;
  }
  assert.equal(api.node.stdin.toString(), "abcdef");
  socket.send(piece(6, "x".repeat(INPUT_WINDOW_BYTES + 1)));
  const told = await next();
  assert.deepEqual(typeof told === "object" ? told.error?.kind : told, "TooLarge");
});

test("what is wrong with the request is answered as HTTP, and nothing is upgraded", async () => {
  await using api = await rig();
  const url = await command(api);
  const status = async (where: string, headers: Readonly<Record<string, string>>) => {
    const socket = new WebSocket(where, { headers });
    socket.on("error", () => undefined);
    const [, response] = await once(socket, "unexpected-response");
    socket.terminate();
    return response.statusCode;
  };
  const authorization = `Bearer ${api.token}`;
  assert.equal(await status(url, {}), 401);
  assert.equal(await status(`${url}?window=1`, { authorization }), 400);
  assert.equal(await status(`${url}?nonsense=1`, { authorization }), 400);
  assert.equal(await status(url.replace(/c[a-z0-9]{12}/, "cnone"), { authorization }), 404);
  const plain = await api.call("GET", new URL(url).pathname);
  assert.deepEqual([plain.status, plain.json.error.kind], [400, "InvalidArgument"]);
});

test("the client's leaving gives everything up on the node", async () => {
  await using api = await rig();
  quiet(api);
  const { socket } = await open(api, await command(api, "?input=take"));
  const signal = api.node.signals.get("takeInput");
  socket.terminate();
  while (api.node.signals.get("readOutput")?.aborted !== true) await new Promise(setImmediate);
  assert.equal(signal?.aborted ?? true, true);
});
