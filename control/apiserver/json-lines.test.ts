import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { jsonLines } from "./json-lines.ts";

const same = (value: object) => value;

async function textOf(lines: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(lines)).toString();
}

test("a quiet stream beats until its next value comes", async () => {
  const quiet = Promise.withResolvers<void>();
  async function* source() {
    yield { n: 1 };
    await quiet.promise;
    yield { n: 2 };
  }
  const lines = jsonLines(source(), same, { beatMs: 1 });
  const seen: string[] = [];
  for await (const line of lines) {
    seen.push(Buffer.from(line).toString());
    if (seen.length === 3) quiet.resolve();
  }
  assert.deepEqual([seen[0], seen[1], seen[2], seen.at(-1)], ['{"n":1}\n', "\n", "\n", '{"n":2}\n']);
});

test("what fails before anything was sent rejects, what fails later is the last line", async () => {
  async function* failing(values: number) {
    for (let n = 0; n < values; n += 1) yield { n };
    throw new SandboxError("SandboxLost", "gone");
  }
  await assert.rejects(textOf(jsonLines(failing(0), same)), { kind: "SandboxLost" });
  const [first, last = ""] = (await textOf(jsonLines(failing(1), same))).trim().split("\n");
  assert.equal(first, '{"n":0}');
  assert.equal((JSON.parse(last) as { error: { kind: string } }).error.kind, "SandboxLost");
});

test("a reader that leaves lets the source go", async () => {
  let isOpen = true;
  async function* source() {
    try {
      for (;;) yield { n: 1 };
    } finally {
      isOpen = false;
    }
  }
  for await (const _ of jsonLines(source(), same)) break;
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isOpen, false);
});
