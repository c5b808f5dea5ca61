import assert from "node:assert/strict";
import { test } from "node:test";
import { type AttachEvent, INPUT_WINDOW_BYTES } from "#api/index.ts";
import { newCommandId, newSandboxId, parseEdgeId } from "#core/ids.ts";
import type { StdinWrite } from "#core/node.ts";
import { TestNode } from "../../test-support/test-node.ts";
import { InputFeed } from "./input-feed.ts";
import type { MessageSocket } from "./socket.ts";

/** A feed that holds the input of a command which takes nothing before it is told to. */
async function held() {
  const go = Promise.withResolvers<void>();
  const runs: { offset: number; pieces: Uint8Array[] }[] = [];
  const node = Object.assign(new TestNode("n1"), {
    async *takeInput() {
      yield { type: "taken" as const, offset: 0 };
      await go.promise;
    },
    async writeStdin(_id: unknown, _command: unknown, { offset, bytes }: StdinWrite) {
      const pieces = await Array.fromAsync(bytes);
      runs.push({ offset, pieces });
      await go.promise;
      return { offset: offset + Buffer.concat(pieces).length };
    },
  });
  const events: AttachEvent[] = [];
  const signal = new AbortController().signal;
  const socket: Pick<MessageSocket, "tell" | "signal"> = { signal, tell: (event) => events.push(event) };
  const target = { id: newSandboxId(parseEdgeId("n1")), node, command: newCommandId(), writer: "w" };
  const feed = new InputFeed(target, socket);
  void feed.take();
  while (events.length === 0) await new Promise(setImmediate);
  return { feed, go, runs };
}

function input(offset: number, bytes: string): Buffer {
  const message = Buffer.alloc(8 + bytes.length);
  message.writeBigUInt64LE(BigInt(offset));
  message.write(bytes, 8, "latin1");
  return message;
}

test("a window of single bytes is kept in few pieces, and arrives as it was", async () => {
  const { feed, go, runs } = await held();
  for (let at = 0; at < INPUT_WINDOW_BYTES; at += 1) feed.push(input(at, String.fromCharCode(at % 256)));
  for (let at = 0; at < 10_000; at += 1) feed.push(input(INPUT_WINDOW_BYTES, ""));
  go.resolve();
  await feed.settled;
  const pieces = runs.flatMap((run) => run.pieces);
  assert.ok(pieces.length < 3_000, `${pieces.length} pieces`);
  const whole = Buffer.concat(pieces);
  assert.equal(whole.length, INPUT_WINDOW_BYTES);
  assert.ok(whole.every((byte, at) => byte === at % 256));
});

test("pieces that do not follow each other are not kept without end", async () => {
  const { feed, go } = await held();
  assert.throws(
    () => {
      for (let at = 0; at < 3_000; at += 1) feed.push(input(2 * at, "x"));
    },
    { kind: "InvalidArgument" },
  );
  go.resolve();
});
