import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";
import { refused } from "../support/sandbox.ts";

describe("the API", () => {
  let node: TestNode;
  before(async () => {
    node = await startNode();
  });
  after(() => node[Symbol.asyncDispose]());

  for (const [what, token] of [
    ["no token", undefined],
    ["a wrong token", `dsec_${"a".repeat(20)}`],
    ["an empty token", ""],
  ] as const) {
    test(`refuses ${what} for every call`, async () => {
      using stranger = new Client({ url: node.url, token, retries: 0 });
      await refused(stranger.whoami(), "Unauthenticated");
      await refused(stranger.sandboxes.create({ base: "debian" }), "Unauthenticated");
      await refused(stranger.artifacts.list(), "Unauthenticated");
      await refused(stranger.nodes.list(), "Unauthenticated");
    });
  }

  test("answers pages of other origins nothing that they may read", async () => {
    const headers = { origin: "http://evil.example", "access-control-request-method": "POST" };
    for (const path of ["/v1/sandboxes", "/v1/whoami", "/openapi.json", "/none"]) {
      for (const method of ["GET", "POST", "OPTIONS"]) {
        const reply = await fetch(new URL(path, node.url), { method, headers });
        await reply.arrayBuffer();
        assert.equal(reply.headers.get("access-control-allow-origin"), null, `${method} ${path}`);
        assert.ok(
          reply.status === 401 || (path === "/openapi.json" && method === "GET"),
          `${method} ${path}: ${reply.status}`,
        );
      }
    }
  });

  test("listens on loopback", () => assert.equal(new URL(node.url).hostname, "127.0.0.1"));

  test("keeps its token from other users of the host", () => {
    assert.equal(statSync(join(node.dataDir, "token")).mode & 0o777, 0o600);
  });
});
