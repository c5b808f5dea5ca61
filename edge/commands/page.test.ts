import assert from "node:assert/strict";
import { test } from "node:test";
import { aFakeSpec } from "#backends/fake/spec.ts";
import type { CommandPageRequest } from "#core/node.ts";
import { listed, never, Rig, run, start } from "../test-support/rig.ts";

async function withCommands(lines: readonly (readonly string[])[]) {
  const rig = await Rig.open();
  const { id } = aFakeSpec();
  await rig.edge.create(aFakeSpec({ id }), never);
  for (const line of lines) await run(rig.edge, id, line);
  const page = (request: Partial<CommandPageRequest>) =>
    rig.edge.listCommands(id, { limit: 10, cursor: undefined, newestFirst: false, ...request }, never);
  return { rig, id, page };
}

test("pages follow one another and have every command once, in either order", async () => {
  const { rig, id, page } = await withCommands(Array.from({ length: 23 }, (_, index) => ["echo", String(index)]));
  await using _rig = rig;
  const all = (await listed(rig.edge, id)).map((command) => command.id);
  for (const newestFirst of [false, true]) {
    const seen: string[] = [];
    const sizes: number[] = [];
    for (let cursor: string | undefined; ; ) {
      const { commands, cursor: next } = await page({ cursor, newestFirst });
      sizes.push(commands.length);
      seen.push(...commands.map((command) => command.id));
      if (next === undefined) break;
      cursor = next;
    }
    assert.deepEqual(sizes, [10, 10, 3]);
    assert.deepEqual(newestFirst ? seen.reverse() : seen, all);
  }
});

test("commands that are started between two pages change no page before them", async () => {
  const { rig, id, page } = await withCommands(Array.from({ length: 4 }, () => ["echo", "x"]));
  await using _rig = rig;
  const first = await page({ limit: 3 });
  const { command } = await start(rig.edge, id, ["sleep", "1000"]);
  const second = await page({ limit: 3, cursor: first.cursor });
  assert.equal(second.commands.length, 2);
  assert.equal(second.commands[1]?.id, command.id);
  assert.equal(second.commands[1]?.status, undefined);
});

test("a page of long command lines ends before a message is full", async () => {
  const long = "x".repeat(100_000);
  const { rig, page } = await withCommands(Array.from({ length: 12 }, () => ["echo", long, long]));
  await using _rig = rig;
  const { commands, cursor } = await page({});
  assert.ok(commands.length >= 1 && commands.length < 10, `${commands.length} commands`);
  assert.ok(JSON.stringify(commands).length < 2_000_000);
  const rest = await page({ cursor, limit: 1_000 });
  assert.ok(rest.commands.length >= 1);
});

test("a cursor that no page gave is refused", async () => {
  const { rig, page } = await withCommands([]);
  await using _rig = rig;
  for (const cursor of ["", "x", "-1", "1e9"]) await assert.rejects(page({ cursor }), { kind: "InvalidArgument" });
});
