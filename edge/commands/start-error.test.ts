import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ErrorKind, SandboxError } from "#core/errors.ts";
import type { TaskSpec } from "#core/guest.ts";
import { startError } from "#edge/commands/start-error.ts";

const TASK: TaskSpec = {
  action: { type: "exec", argv: [Buffer.from("prog"), Buffer.from("secret")] },
  user: "root",
  cwd: "/",
  env: {},
  stdin: "none",
  timeLimitMs: undefined,
};

function messageOf(kind: ErrorKind, stage: string, asked: Partial<TaskSpec> = {}): string {
  const refusal = new SandboxError(kind, "refused", { hint: "do so", details: { stage, code: "ENOENT" } });
  const error = startError(refusal, { ...TASK, ...asked });
  assert.ok(error instanceof SandboxError);
  assert.deepEqual([error.kind, error.hint, error.details], [kind, "do so", { stage, code: "ENOENT" }]);
  return error.message;
}

function program(name: string | Uint8Array): Partial<TaskSpec> {
  return { action: { type: "exec", argv: [Buffer.from(name), Buffer.from("secret")] } };
}

describe("the error of a task that did not start", () => {
  test("names what the guest refused", () => {
    assert.equal(messageOf("CommandNotFound", "exec", program("/bin/none")), 'refused: "/bin/none"');
    assert.equal(messageOf("CommandNotExecutable", "interpreter", program("./x")), 'refused: "./x"');
    assert.equal(messageOf("InvalidArgument", "user", { user: "nobodyhome" }), 'refused: "nobodyhome"');
    assert.equal(messageOf("InvalidArgument", "cwd", { cwd: "/none" }), 'refused: "/none"');
  });

  test("names nothing that is not to blame", () => {
    for (const [kind, stage] of [
      ["InvalidArgument", "exec"],
      ["SandboxLimit", "exec"],
      ["SandboxLimit", "spawn"],
      ["Internal", "toString"],
    ] as const)
      assert.equal(messageOf(kind, stage), "refused");
    const lost = new Error("lost");
    assert.equal(startError(lost, TASK), lost);
  });

  test("stays short and harmless, whatever the bytes are", () => {
    for (const name of [
      "/x".repeat(60_000),
      Buffer.alloc(100_000, 0xff),
      "😀".repeat(50_000),
      "\u202e".repeat(9_000),
    ]) {
      const message = messageOf("CommandNotFound", "exec", program(name));
      assert.ok(message.length < 2_000 && message.endsWith('…"'), message);
    }
    const odd = messageOf("CommandNotFound", "exec", program('a"\n\u001b[31m\u0085\u202e\u2028b'));
    assert.equal(odd, 'refused: "a\\"\\n\\u001b[31m\\u{85}\\u{202e}\\u{2028}b"');
    assert.equal(messageOf("CommandNotFound", "exec", program(Buffer.from([0x66, 0xff]))), 'refused: "f\ufffd"');
  });
});
