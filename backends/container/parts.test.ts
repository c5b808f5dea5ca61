import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { newSandboxId, parseEdgeId, type SandboxId } from "#core/ids.ts";
import { checkRlimits, readHardLimits, rlimitArgs } from "#host/cradle/rlimits.ts";
import { checkIdRanges, ID_LIMIT, IDS_PER_SANDBOX, uidBaseOf } from "#host/id-ranges.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { agentOf, handleOf, isAlive, parseRecord } from "./handle.ts";
import { containerObstacles } from "./probe.ts";
import { RunDirs } from "./run-dirs.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-parts-"));
after(() => rmSync(root, { recursive: true }));
const id = newSandboxId(parseEdgeId("test"));

describe("handles", () => {
  test("a handle survives JSON and names the same agent", () => {
    const agent = { pid: 42, startTicks: 4711 };
    assert.deepEqual(agentOf(JSON.parse(JSON.stringify(handleOf(id, agent, [])))), agent);
  });

  test("what is no handle of this backend names no agent", () => {
    for (const opaque of [
      {},
      { pid: 1 },
      { pid: "1", startTicks: 2 },
      { pid: 1.5, startTicks: 2 },
      { pid: null, startTicks: 2 },
    ]) {
      assert.equal(agentOf({ version: 1, id, opaque }), undefined);
    }
  });

  test("any text is a record or none, never an error", () => {
    fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void parseRecord(text)));
    for (const text of [
      '{"pid":7,"startTic',
      "null",
      '{"pid":7,"startTicks":8}',
      '{"pid":7,"startTicks":8,"cpus":1}',
      '{"pid":7,"startTicks":8,"cpus":1,"processors":"0"}',
    ]) {
      assert.equal(parseRecord(text), undefined, text);
    }
  });

  test("a process of another start time is not alive", () => {
    const startTicks = processStartTicks(process.pid) ?? 0;
    assert.equal(isAlive({ pid: process.pid, startTicks }), true);
    assert.equal(isAlive({ pid: process.pid, startTicks: startTicks - 1 }), false);
  });
});

describe("user ids", () => {
  test("no two slots share an id, and none reaches the upper half", () => {
    fc.assert(
      fc.property(fc.nat(30_000), fc.nat(30_000), (a, b) => {
        const [first, second] = [uidBaseOf({ slot: a }, 2 ** 27), uidBaseOf({ slot: b }, 2 ** 27)];
        assert.ok(a === b || Math.abs(first - second) >= IDS_PER_SANDBOX);
        assert.ok(first + IDS_PER_SANDBOX <= ID_LIMIT);
      }),
    );
  });

  test("a slot beyond the last id is NodeFull, not another sandbox's", () => {
    assert.throws(() => uidBaseOf({ slot: 32_768 }, 2 ** 27), { kind: "NodeFull" });
    assert.throws(() => uidBaseOf({ slot: -1 }, 2 ** 27), { kind: "NodeFull" });
  });

  test("ids that are somebody's rootless containers are refused with an id that is free", () => {
    const file = join(root, "subuid");
    writeFileSync(file, "# people\nann:100000:65536\nbob:134217728:65536\n");
    checkIdRanges(2 ** 28, [file, join(root, "absent")]);
    assert.throws(() => checkIdRanges(2 ** 27, [file]), {
      kind: "FailedPrecondition",
      message: /given to bob/,
      hint: /134283264/,
    });
  });
});

describe("resource limits", () => {
  test("become the agent's arguments, unlimited by its word", () => {
    const rlimits = { nofile: { soft: 10, hard: 20 }, core: { soft: 0, hard: Number.POSITIVE_INFINITY } };
    assert.deepEqual(rlimitArgs(rlimits), ["--rlimit=nofile:10:20", "--rlimit=core:0:unlimited"]);
    assert.deepEqual(rlimitArgs({}), []);
  });

  test("the node's own hard limits are read for each", () => {
    const limits = readHardLimits();
    assert.equal(limits.size, 8);
    for (const [name, most] of limits) assert.ok(most >= 0, `${name}: ${most}`);
  });

  test("are refused by name when they are no limits, or above the node's", () => {
    const node = new Map([["nofile", 100]] as const);
    checkRlimits({ nofile: { soft: 100, hard: 100 }, nproc: { soft: 1, hard: Number.POSITIVE_INFINITY } }, node);
    for (const soft of [-1, 1.5, Number.NaN]) {
      assert.throws(() => checkRlimits({ cpu: { soft, hard: 2 } }, node), { kind: "InvalidArgument", message: /cpu/ });
    }
    assert.throws(() => checkRlimits({ stack: { soft: 3, hard: 2 } }, node), {
      kind: "InvalidArgument",
      message: /stack/,
    });
    assert.throws(() => checkRlimits({ nofile: { soft: 1, hard: 101 } }, node), {
      kind: "FailedPrecondition",
      message: /rlimit nofile of 101/,
      hint: /100 or less/,
    });
  });
});

describe("run directories", () => {
  test("hold an agent from writing to removing, whatever else is in them", () => {
    const dirs = new RunDirs(root);
    assert.equal(dirs.make(id), true);
    assert.equal(dirs.make(id), false);
    assert.equal(dirs.readAgent(id), undefined);
    const record = { pid: 1, startTicks: 2, cpus: 0.5, processors: "0-1", createdTicks: 3 };
    dirs.writeAgent(id, record);
    assert.deepEqual(dirs.readAgent(id), record);
    mkdirSync(join(root, "sandboxes", id, "unexpected"));
    assert.deepEqual([...dirs.list()], [id]);
    for (let times = 0; times < 2; times += 1) dirs.remove(id);
    assert.equal(dirs.list().size, 0);
    assert.equal(dirs.readAgent(id), undefined);
  });

  test("of a path too long for a socket are refused with what to do", () => {
    assert.throws(() => new RunDirs(join(root, "d".repeat(60))), { kind: "FailedPrecondition", hint: /shorter/ });
  });

  test("the longest id of the longest edge fits", () => {
    const longest = newSandboxId(parseEdgeId("e".repeat(16))) as SandboxId;
    const dirs = new RunDirs("/tmp/dsec-run-directory-of-a-usual-length"); // 41 characters
    try {
      assert.ok(Buffer.byteLength(dirs.socketPath(longest)) <= 107);
    } finally {
      rmSync("/tmp/dsec-run-directory-of-a-usual-length", { recursive: true });
    }
  });
});

test("a host is refused for what containers need, not for what only narrows the choice", () => {
  const fact = (name: string, state: "works" | "partial" | "missing") => ({
    name,
    state,
    why: "",
    how: "",
    detail: "",
  });
  const facts = [fact("kvm", "missing"), fact("erofs", "partial"), fact("cgroups", "missing"), fact("root", "works")];
  assert.deepEqual(
    containerObstacles(facts).map(({ name }) => name),
    ["cgroups"],
  );
});
