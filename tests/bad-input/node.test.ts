import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { startNode } from "../support/node.ts";
import { create, output, startNodeWithBase } from "../support/sandbox.ts";

const ENTRY = join(import.meta.dirname, "../../bin/node.ts");

describe("a node", () => {
  test("on a port in use says so and leaves nothing behind", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(address !== null && typeof address === "object");
    await assert.rejects(startNode({ words: [`--listen=127.0.0.1:${address.port}`] }), /in use/);
    server.close();
  });

  test("on the data of a running node says whose they are", async () => {
    await using node = await startNode();
    const words = [ENTRY, "--listen=127.0.0.1:0", `--edge=${node.marks.edge}`];
    const second = spawnSync(process.execPath, words, {
      env: { ...process.env, ...node.env },
      encoding: "utf8",
      timeout: 30_000,
    });
    assert.notEqual(second.status, 0);
    assert.match(second.stderr, new RegExp(`\\b${node.pid}\\b`));
    assert.equal((await node.client.whoami()).project, "default");
  });

  test("with an unknown setting names it", async () => {
    await assert.rejects(startNode({ words: ["--no-such-setting=1"] }), /no-such-setting/);
  });

  test("that was killed while it started comes up the next time", async () => {
    await using node = await startNodeWithBase();
    for (let attempt = 0; attempt < 3; attempt++) {
      await node.kill();
      const starting = node.start().catch(() => undefined);
      await node.kill();
      await starting;
    }
    await node.start();
    await using sandbox = await create(node);
    assert.equal(await output(sandbox, "echo alive"), "alive");
  });
});
