import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connectQmp } from "./qmp.ts";

/** Somebody who has taken a monitor's place, and says what he likes. */
async function monitor(answer: (line: string, socket: Socket) => void): Promise<AsyncDisposable & { path: string }> {
  const dir = mkdtempSync(join(tmpdir(), "dsec-qmp-"));
  const path = join(dir, "monitor.sock");
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      for (const line of bytes.toString().trim().split("\n")) answer(line, socket);
    });
  }).listen(path);
  await once(server, "listening");
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      server.close();
      rmSync(dir, { recursive: true });
    },
  };
}

test("a monitor that does not answer is given up, and everybody who waits for it is told", async () => {
  await using silent = await monitor(() => {});
  await assert.rejects(connectQmp(silent.path, 50), { kind: "SandboxLost" });
  await using stuck = await monitor((line, socket) => {
    const { execute, id } = JSON.parse(line) as { execute: string; id: number };
    if (execute !== "stop") socket.write(`${JSON.stringify({ return: {}, id })}\n`);
  });
  const qmp = await connectQmp(stuck.path, 1_000);
  const orders = [qmp.order("stop"), qmp.order("stop")];
  assert.deepEqual(await qmp.order("cont"), {});
  for (const order of orders) await assert.rejects(order, { kind: "SandboxLost" });
  await qmp.closed;
  await assert.rejects(qmp.order("cont"), { kind: "SandboxLost" });
});

test("what is no answer ends the talk", async () => {
  for (const said of ["no JSON\n", "7\n", `${"x".repeat(2 * 1024 * 1024)}\n`]) {
    await using liar = await monitor((_, socket) => socket.write(said));
    await assert.rejects(connectQmp(liar.path), { kind: "SandboxLost" });
  }
});

test("a monitor that is somebody else's takes nobody down with what it says", async () => {
  const lies = [
    '{"event":"error"}',
    '{"event":{"toString":1}}',
    '{"id":1,"error":null}',
    '{"id":1,"error":{"desc":7}}',
  ];
  for (const lie of lies) {
    await using liar = await monitor((_, socket) => socket.write(`${lie}\n`));
    await assert.rejects(connectQmp(liar.path), { kind: "SandboxLost" }, lie);
  }
});

test("nobody stays connected to a monitor that refuses to talk", async () => {
  const closed = Promise.withResolvers<void>();
  await using liar = await monitor((_, socket) => {
    socket.once("close", () => closed.resolve());
    socket.write('{"id":1,"error":{"class":"GenericError","desc":"no"}}\n');
  });
  await assert.rejects(connectQmp(liar.path), { kind: "Internal" });
  await closed.promise;
});
