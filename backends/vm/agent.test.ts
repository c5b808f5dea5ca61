import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TaskSink, TaskSpec } from "#core/guest.ts";
import { ComputerAgent } from "./agent.ts";
import { NoAgent } from "./no-agent.ts";

const TASK: TaskSpec = {
  action: { type: "exec", argv: [Buffer.from("true")] },
  user: "root",
  cwd: "/",
  env: {},
  stdin: "none",
  timeLimitMs: undefined,
};
const SINK: TaskSink = { output: () => undefined, ended: () => undefined, end: () => undefined };

test("an image without an agent: tasks are refused by name, there are none, and the link ends with the computer", async () => {
  const ended = Promise.withResolvers<void>();
  const link = new NoAgent("1.2", ended.promise);
  await assert.rejects(link.start(), { kind: "FailedPrecondition", message: /no agent/ });
  assert.deepEqual([await link.list(), link.hello.bootId], [[], "1.2"]);
  ended.resolve();
  await link.closed;
});

test("an agent that does not answer yet has no tasks; a computer that is off says so; its end is the end of the link", async () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-agent-"));
  // A port that takes connections, as QEMU does, and nobody behind it.
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer((socket) => sockets.add(socket)).listen(join(dir, "control.sock"));
  try {
    const ended = Promise.withResolvers<void>();
    const computer = { ended: ended.promise, isOn: async () => false, onAgentGone: () => new DisposableStack() };
    const link = new ComputerAgent("3.4", computer, { dir, patientUntilMs: 0 });
    assert.deepEqual([await link.list(), link.hello.bootId], [[], "3.4"]);
    await assert.rejects(link.start(1, TASK, SINK), { kind: "FailedPrecondition", message: /is off/ });
    await assert.rejects(link.writeStdin(1, 0, Buffer.from("x")), { kind: "Unavailable" });
    await link.ping(10);
    ended.resolve();
    await link.closed;
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(dir, { recursive: true });
  }
});
