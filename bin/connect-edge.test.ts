import assert from "node:assert/strict";
import { test } from "node:test";
import { pino } from "pino";
import { SandboxError } from "#core/errors.ts";
import type { Node } from "#core/node.ts";
import { connectEdge } from "./connect-edge.ts";

for (const transport of ["memory", "websocket"] as const) {
  test(`over ${transport}, the log has the whole chain of causes of what the apiserver sees as Internal`, async () => {
    const lines: string[] = [];
    const log = pino({ base: null }, { write: (line: string) => lines.push(line) });
    const lowest = Object.assign(new Error("EIO: i/o error"), { code: "EIO" });
    const broken = new SandboxError("Internal", "the journal cannot be read", { cause: lowest });
    const edge = { list: () => Promise.reject(broken) } as Partial<Node> as Node;
    await using node = await connectEdge(edge, transport, log);
    await assert.rejects(node.list({}, AbortSignal.timeout(10_000)), { kind: "Internal" });
    assert.equal(lines.length, 1);
    const { method, err } = JSON.parse(lines[0] ?? "");
    assert.equal(method, "list");
    assert.match(err.message, /journal cannot be read: EIO/);
    assert.match(err.stack, /caused by: Error: EIO/);
  });
}
