import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BASE, create, startNodeWithBase } from "../support/sandbox.ts";

describe("the API refuses a body", () => {
  let node: TestNode;
  let sandbox: Sandbox;
  let command = "";
  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
    command = (await sandbox.start(["true"])).id;
  });
  after(async () => {
    const { length } = await Array.fromAsync(node.client.sandboxes.list());
    await node[Symbol.asyncDispose]();
    assert.equal(length, 1, "a refused call has made a sandbox");
  });

  async function send(method: string, path: string, body: string | Uint8Array<ArrayBuffer>) {
    const headers = { authorization: `Bearer ${node.token}`, "content-type": "application/json" };
    const reply = await fetch(`${node.url}${path}`, { method, headers, body });
    const { error } = (await reply.json()) as { error: { kind: string; message: string } };
    return { status: reply.status, ...error };
  }

  test("with an unknown key, wherever it is", async () => {
    const own = `/v1/sandboxes/${sandbox.id}`;
    const cases = [
      ["POST", "/v1/sandboxes", { base: BASE, extra: 1 }],
      ["POST", "/v1/sandboxes", { base: BASE, resources: { extra: 1 } }],
      ["POST", "/v1/sandboxes", { base: BASE, rlimits: { extra: { soft: 1, hard: 1 } } }],
      ["PATCH", own, { extra: 1 }],
      ["POST", `${own}/commands`, { argv: ["true"], extra: 1 }],
      ["POST", `${own}/commands`, { argv: [{ base64: "eA==", extra: 1 }] }],
      ["POST", `${own}/commands/${command}/signal`, { signal: "SIGTERM", extra: 1 }],
      ["POST", "/v1/artifacts/build", { name: "x", extra: 1 }],
    ] as const;
    for (const [method, path, body] of cases) {
      const { status, kind, message } = await send(method, path, JSON.stringify(body));
      assert.deepEqual([status, kind], [400, "InvalidArgument"], `${method} ${path}: ${message}`);
      assert.match(message, /extra|argv/, path);
    }
  });

  test("with an unknown parameter of the query", async () => {
    const { kind, message } = await send("POST", "/v1/sandboxes?extra=1", JSON.stringify({ base: BASE }));
    assert.equal(kind, "InvalidArgument", message);
    assert.match(message, /extra/);
  });

  test("that is no JSON, no object, no text, or too deep", async () => {
    const deep = "[".repeat(100_000);
    for (const body of ["", "{", "[]", "null", "1", '"text"', '{"base": NaN}', '{"base":"\\ud800"}', deep]) {
      const { status, kind } = await send("POST", "/v1/sandboxes", body);
      assert.deepEqual([status, kind], [400, "InvalidArgument"], body.slice(0, 20));
    }
    const { kind } = await send("POST", "/v1/sandboxes", Uint8Array.of(0x22, 0xff, 0x22));
    assert.equal(kind, "InvalidArgument");
  });

  test("whose keys are those of every object", async () => {
    for (const key of ["__proto__", "constructor", "toString"]) {
      const { kind } = await send("POST", "/v1/sandboxes", `{"base":${JSON.stringify(BASE)},"${key}":{"base":"x"}}`);
      assert.equal(kind, "InvalidArgument", key);
    }
  });

  // Announced, not sent: a server may hang up on a sender in the middle, who then never sees the answer.
  test("that is larger than any request", async () => {
    const headers = { authorization: `Bearer ${node.token}`, "content-type": "application/json" };
    const options = { method: "POST", headers: { ...headers, "content-length": 64 << 20 } };
    const call = request(new URL("/v1/sandboxes", node.url), options);
    call.on("error", () => undefined);
    call.flushHeaders();
    const [reply] = (await once(call, "response")) as [IncomingMessage];
    const { error } = JSON.parse(Buffer.concat(await reply.toArray()).toString());
    call.destroy();
    assert.deepEqual([reply.statusCode, error.kind], [413, "TooLarge"]);
  });
});
