import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";

/** The HTTP API as a plain client sees it: no SDK, nothing but requests. */
export function apiContract(backend: ContractBackend): void {
  describe(`the API over a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());

    const call = (path: string, init: RequestInit = {}) =>
      fetch(`${node.url}/v1/sandboxes/${sandbox.id}${path}`, {
        ...init,
        headers: { authorization: `Bearer ${node.token}`, ...init.headers },
      });
    const outputOf = (id: string, query: string, headers: Record<string, string>) =>
      call(`/commands/${id}/output/stdout?${query}`, { headers });

    test("output as lines of JSON: live, text where it is text, the end by name", async () => {
      const command = await sandbox.start(["sh", "-c", "printf 'gr\\303'; read x; printf '\\274n\\n\\377'"], {
        stdin: "pipe",
      });
      const reply = await outputOf(command.id, "follow=true", { accept: "application/x-ndjson" });
      assert.equal(reply.headers.get("content-type"), "application/x-ndjson");
      const lines = linesOf(reply);
      assert.deepEqual((await lines.next()).value, { offset: 0, data: "gr" });
      await command.pipe("go\n");
      const rest = await Array.fromAsync(lines);
      assert.deepEqual(rest.at(-1), { end: "ended", offset: 7 });
      const bytes = rest.map((event) => dataOf(event));
      assert.deepEqual(Buffer.concat(bytes), Buffer.from([0xc3, 0xbc, 0x6e, 0x0a, 0xff]));
    });

    test("attach loses earlier output: server-sent events resume behind the last one, and stop after the end", async () => {
      const command = await sandbox.start(["sh", "-c", "echo one; read x; echo two"], { stdin: "pipe" });
      const first = await outputOf(command.id, "follow=true", { accept: "text/event-stream" });
      const events = sseOf(first);
      const { value } = await events.next();
      assert.deepEqual(value, { event: "data", id: "4", data: { offset: 0, data: "one\n" } });
      await events.return(undefined);
      await command.pipe("go\n");
      const resumed = await outputOf(command.id, "follow=true", { accept: "text/event-stream", "last-event-id": "4" });
      assert.deepEqual(await Array.fromAsync(sseOf(resumed)), [
        { event: "data", id: "8", data: { offset: 4, data: "two\n" } },
        { event: "end", id: "8", data: { end: "ended", offset: 8 } },
      ]);
      const over = await outputOf(command.id, "follow=true", { accept: "text/event-stream", "last-event-id": "8" });
      assert.equal(over.status, 204);
      const wrong = await outputOf(command.id, "", { accept: "text/event-stream", "last-event-id": "x" });
      assert.equal(wrong.status, 400);
    });

    test("a gap is an event of its own in both forms", async () => {
      const { id } = await sandbox.start(["sh", "-c", "seq 100000"], { outputCapBytes: 1000 });
      await sandbox.command(id).wait();
      for (const [form, read] of [
        ["application/x-ndjson", linesOf],
        ["text/event-stream", sseData],
      ] as const) {
        const all = await Array.fromAsync(read(await outputOf(id, "follow=true", { accept: form })));
        const gaps = all.filter((event) => "gap" in event);
        assert.deepEqual(gaps, [{ gap: { from: 500, to: 588_895 - 500 } }], form);
        assert.deepEqual(all.at(-1), { end: "ended", offset: 588_895 });
      }
    });

    test("a hidden limit below the configured one: the time limit in force is in the reply", async () => {
      const limitOf = async (headers: Record<string, string>) =>
        (await call("", { headers })).headers.get("dsec-timeout-ms");
      assert.equal(await limitOf({ "dsec-timeout-ms": "1234" }), "1234");
      assert.equal(await limitOf({ "dsec-timeout-ms": "999999999" }), "3600000");
      assert.equal(await limitOf({}), "60000");
      assert.equal((await call("", { headers: { "dsec-timeout-ms": "0" } })).status, 400);
    });
  });
}

type Json = Readonly<Record<string, unknown>>;

async function* textLines(reply: Response): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of reply.body ?? []) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  assert.equal(rest, "", "the reply ends within a line");
}

async function* linesOf(reply: Response): AsyncGenerator<Json, void, undefined> {
  for await (const line of textLines(reply)) if (line !== "") yield JSON.parse(line) as Json;
}

interface ServerEvent {
  readonly event: string;
  readonly id: string;
  readonly data: Json;
}

/** A reader of server-sent events as the standard has it, as far as one-line fields go. */
async function* sseOf(reply: Response): AsyncGenerator<ServerEvent, void, undefined> {
  let fields: Record<string, string> = {};
  for await (const line of textLines(reply)) {
    if (line === "" && fields.data !== undefined) {
      yield { event: fields.event ?? "message", id: fields.id ?? "", data: JSON.parse(fields.data) as Json };
      fields = {};
    }
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
}

async function* sseData(reply: Response): AsyncGenerator<Json, void, undefined> {
  for await (const { data } of sseOf(reply)) yield data;
}

function dataOf(event: Json): Buffer {
  const { data } = event;
  if (typeof data === "string") return Buffer.from(data);
  return typeof data === "object" && data !== null && "base64" in data
    ? Buffer.from(String(data.base64), "base64")
    : Buffer.alloc(0);
}
