import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { type CommandId, newCommandId } from "#core/ids.ts";
import type { CommandRow } from "#edge/commands/rows.ts";
import { carry } from "#edge/copies/carried.ts";
import { Receipts } from "#edge/copies/receipts.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-carried-"));
after(() => rmSync(root, { recursive: true }));

const IDS = [newCommandId(), newCommandId()] as const;
const [ONE, TWO] = IDS;
const row = (id: CommandId): CommandRow => ({
  ...{ number: 1, id, capBytes: 1, pid: 1, startedAtMs: 0, status: undefined, streams: undefined, keptBytes: 0 },
  spec: {
    ...{ argv: ["true"], env: {}, stdin: "none", waitFor: "leader" },
    ...{ cwd: undefined, user: undefined, terminal: undefined, timeLimitMs: undefined, outputCapBytes: undefined },
    idempotencyKey: undefined,
  },
  small: { stdout: undefined, stderr: undefined },
});

/** Two commands that run, and an agent that notes what it is told. */
function running(name: string) {
  const outputDir = join(root, name, "outputs");
  mkdirSync(outputDir, { recursive: true });
  const told: number[] = [];
  const receipts = new Receipts(() => ({ acknowledge: (_number, _stream, offset) => told.push(offset), forget() {} }));
  const rows = { open: () => IDS.map(row) };
  return { outputDir, told, receipts, rows, pidOf: () => 1 };
}

test("the outputs of what runs are carried, and the agent is told what is safe when the copies are made", async () => {
  const { told, receipts, ...parts } = running("whole");
  writeFileSync(join(parts.outputDir, `${ONE}.stdout`), "said");
  {
    await using carrying = carry({ ...parts, held: receipts.hold() });
    assert.deepEqual(readdirSync(carrying.carried.dir), [`${ONE}.stdout`]);
    receipts.acknowledge(1, "stdout", 4);
    assert.deepEqual(told, []);
    carrying.copied();
  }
  assert.deepEqual(told, [4]);
  assert.deepEqual(readdirSync(join(parts.outputDir, "..")), ["outputs"]);
});

test("outputs that cannot be carried leave nothing behind, and the agent is told again", () => {
  const { told, receipts, ...parts } = running("broken");
  writeFileSync(join(parts.outputDir, `${ONE}.stdout`), "said");
  // No file, as on a disk that is full.
  mkdirSync(join(parts.outputDir, `${TWO}.stderr`));
  assert.throws(() => carry({ ...parts, held: receipts.hold() }));
  receipts.acknowledge(1, "stdout", 4);
  assert.deepEqual(told, [4]);
  assert.deepEqual(readdirSync(join(parts.outputDir, "..")), ["outputs"]);
});
