import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { FunctionCall } from "#core/functions.ts";
import { type EdgeId, newInvocationId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";

/** What the suite needs of a node that runs functions. Made anew for each test, and disposed after it. */
export interface FunctionsRig extends AsyncDisposable {
  readonly node: Node;
  /** A call of a shell script, which has `cat`, `sleep`, `echo` and `env`. */
  call(code: string, change?: Partial<FunctionCall>): FunctionCall;
}

const MIB = 1024 * 1024;
const soon = () => AbortSignal.timeout(60_000);

/** The promises of `Node` about functions: they hold for an edge and for every way to reach it. */
export function functionsOfNode(name: string, make: () => Promise<FunctionsRig>): void {
  describe(`${name} keeps the Node contract about functions`, () => {
    let rig: FunctionsRig;
    beforeEach(async () => {
      rig = await make();
    });
    afterEach(() => rig[Symbol.asyncDispose]());
    results(() => rig);
    started(() => rig);
  });
}

function results(rig: () => FunctionsRig): void {
  test("a call's bytes go in and its own come out, few or many", async () => {
    const { node, call } = rig();
    for (const size of [0, 1, 3 * MIB]) {
      const bytes = randomBytes(size);
      const files = [{ name: "in", mode: 0o644, bytes }];
      using result = await node.invoke(
        call("cat; cp in out; exit 3", { stdin: bytes, files, outputs: ["out"] }),
        soon(),
      );
      assert.deepEqual([result.status, result.run?.exitCode], ["runtime-error", 3]);
      assert.ok(bytes.equals(result.run?.stdout ?? Buffer.of(0)));
      assert.ok(bytes.equals(result.files[0]?.bytes ?? Buffer.of(0)));
    }
  });

  test("what looks like a mark of the wire is a variable", async () => {
    const { node, call } = rig();
    for (const env of [{ $bulk: "4" }, { $bytes: "QQ==" }, { $$bulk: "x" }]) {
      using result = await node.invoke(call("", { code: undefined, command: ["env"], env }), soon());
      const [[key, value] = []] = Object.entries(env);
      assert.ok(Buffer.from(result.run?.stdout ?? []).includes(`${key}=${value}\n`));
    }
  });

  test("tests have a result each, however many there are", async () => {
    const { node, call } = rig();
    const tests = Array.from({ length: 900 }, (_, index) => ({
      stdin: Buffer.from(`${index}`),
      expected: Buffer.from(index === 7 ? "other" : `${index}`),
      checker: { type: "exact" } as const,
    }));
    using result = await node.invoke(call("cat", { tests, stopEarly: true }), soon());
    assert.deepEqual(
      result.tests.slice(6, 9).map(({ verdict }) => verdict),
      ["accepted", "wrong-answer", "skipped"],
    );
    assert.equal(result.tests.length, 900);
  });

  test("a caller that leaves ends its call, and its node goes on", async () => {
    const { node, call } = rig();
    const leaver = new AbortController();
    const left = node.invoke(call("sleep 1000"), leaver.signal);
    setImmediate(() => leaver.abort(new Error("left")));
    await assert.rejects(left);
    using result = await node.invoke(call("echo after"), soon());
    assert.equal(String(Buffer.from(result.run?.stdout ?? [])), "after\n");
  });
}

function started(rig: () => FunctionsRig): void {
  test("a started call is waited for by its project, again and again, until it is dropped", async () => {
    const { node, call } = rig();
    const { project } = call("");
    const id = await node.startInvocation(call("sleep 0.3; echo late"), soon());
    assert.equal(await node.waitInvocation(id, { project, waitMs: 1 }, soon()), undefined);
    for (let time = 0; time < 2; time += 1) {
      using result = await node.waitInvocation(id, { project, waitMs: 60_000 }, soon());
      assert.equal(String(Buffer.from(result?.run?.stdout ?? [])), "late\n");
    }
    const unknown = { kind: "NotFound" };
    await assert.rejects(node.waitInvocation(id, { project: "another", waitMs: 0 }, soon()), unknown);
    await node.dropInvocation(id, project, soon());
    await node.dropInvocation(id, project, soon());
    await assert.rejects(node.waitInvocation(id, { project, waitMs: 0 }, soon()), unknown);
  });

  test("a call that nobody has started is unknown", async () => {
    const { edge } = await rig().node.info(soon());
    const wait = { project: "p", waitMs: 0 };
    await assert.rejects(rig().node.waitInvocation(newInvocationId(edge as EdgeId), wait, soon()), {
      kind: "NotFound",
    });
  });

  test("the node tells how many of its calls run", async () => {
    const { node, call } = rig();
    const ids = [
      await node.startInvocation(call("sleep 1000"), soon()),
      await node.startInvocation(call("sleep 1000"), soon()),
    ];
    const signal = soon();
    for (let running = 0; running < 2; ) running = (await node.info(signal)).functions?.running ?? 0;
    for (const id of ids) await node.dropInvocation(id, call("").project, soon());
  });
}
