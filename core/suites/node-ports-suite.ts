import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import type { SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { PortPiece } from "#core/ports.ts";

type Ready = () => Promise<{ readonly node: Node; readonly id: SandboxId }>;

const soon = () => AbortSignal.timeout(30_000);
const MIB = 1024 * 1024;
const ECHO_PORT = 7;

/** The promises of `Node` about ports; a server in the sandboxes that are `ready` echoes on port 7. */
export function portsOfNode(ready: Ready): void {
  test("a connection to a port is open, brings back what goes in, and ends when both sides have", async () => {
    const { node, id } = await ready();
    const sent = randomBytes(3 * MIB);
    const pieces = await collect(node.openPort(id, ECHO_PORT, from([sent.subarray(0, 5), sent.subarray(5)]), soon()));
    assert.deepEqual([pieces[0], pieces.at(-1)], ["open", "end"]);
    const bytes = pieces.filter((piece) => typeof piece !== "string");
    assert.equal(bytes.length, pieces.length - 2);
    assert.ok(Buffer.concat(bytes).equals(sent));
  });

  test("a connection goes both ways at once: an answer comes while the input is open", async () => {
    const { node, id } = await ready();
    const done = Promise.withResolvers<void>();
    const incoming = async function* () {
      yield Buffer.from("question");
      await done.promise;
    };
    const connection = node.openPort(id, ECHO_PORT, incoming(), soon())[Symbol.asyncIterator]();
    assert.equal((await connection.next()).value, "open");
    assert.equal(Buffer.from((await connection.next()).value as Uint8Array).toString(), "question");
    done.resolve();
    assert.equal((await connection.next()).value, "end");
    assert.equal((await connection.next()).done, true);
  });

  test("a port that nobody listens on is PortFailed before anything is open; a bad one is refused", async () => {
    const { node, id } = await ready();
    await assert.rejects(collect(node.openPort(id, 9, from([]), soon())), { kind: "PortFailed" });
    for (const port of [0, -1, 65_536, 1.5]) {
      const expected = { kind: "InvalidArgument", details: { field: "port" } };
      await assert.rejects(collect(node.openPort(id, port, from([]), soon())), expected);
      await assert.rejects(node.waitForPort(id, port, 0, soon()), expected);
    }
  });

  test("an input that fails, a caller that leaves and a sandbox that goes end a connection", async () => {
    const { node, id } = await ready();
    const failing = async function* () {
      yield Buffer.from("x");
      throw new Error("the source broke");
    };
    await assert.rejects(collect(node.openPort(id, ECHO_PORT, failing(), soon())));
    const never = async function* () {
      yield Buffer.from("x");
      await new Promise(() => undefined);
    };
    for await (const piece of node.openPort(id, ECHO_PORT, never(), soon())) if (piece === "open") break;
    const rest = collect(node.openPort(id, ECHO_PORT, never(), soon()));
    const gone = assert.rejects(rest, { kind: "SandboxLost" });
    await node.listListeners(id, soon());
    await node.destroy(id, soon());
    await gone;
  });

  test("who listens is told, and waited for", async () => {
    const { node, id } = await ready();
    const listeners = await node.listListeners(id, soon());
    assert.deepEqual(
      listeners.map(({ port }) => port),
      [ECHO_PORT],
    );
    assert.equal(await node.waitForPort(id, ECHO_PORT, 20_000, soon()), true);
    assert.equal(await node.waitForPort(id, 9, 10, soon()), false);
  });
}

async function* from(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void, undefined> {
  yield* parts;
}

async function collect(source: AsyncIterable<PortPiece>): Promise<PortPiece[]> {
  const items: PortPiece[] = [];
  // A piece is its reader's only until the next is asked for.
  for await (const item of source) items.push(item instanceof Uint8Array ? new Uint8Array(item) : item);
  return items;
}
