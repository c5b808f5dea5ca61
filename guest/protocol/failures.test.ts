import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import { decodeEnd, signalName, startFailure } from "./failures.ts";

const { E2BIG, EACCES, EAGAIN, EEXIST, EIO, ENOENT, ENOEXEC, ENOMEM, ENOSPC, ENOTDIR, EPERM, ETXTBSY } =
  constants.errno;

describe("failures", () => {
  test("each stage and errno has its kind", () => {
    const cases = [
      [9, ENOENT, "CommandNotFound"],
      [9, ENOTDIR, "CommandNotFound"],
      [9, EACCES, "CommandNotExecutable"],
      [9, ENOEXEC, "CommandNotExecutable"],
      [9, E2BIG, "InvalidArgument"],
      [9, ENOMEM, "SandboxLimit"],
      [10, ENOENT, "CommandNotExecutable"],
      [8, ENOENT, "InvalidArgument"],
      [6, ENOENT, "InvalidArgument"],
      [6, EPERM, "InvalidArgument"],
      [7, EPERM, "FailedPrecondition"],
      [4, EAGAIN, "SandboxLimit"],
      [2, EAGAIN, "SandboxLimit"],
      [2, ENOSPC, "SandboxLimit"],
      [3, EIO, "Internal"],
      [5, EIO, "Internal"],
      [11, EEXIST, "AlreadyExists"],
      [200, 0, "Internal"],
      [200, 100_000, "Internal"],
    ] as const;
    for (const [stage, errno, kind] of cases) assert.equal(startFailure(stage, errno).kind, kind, `${stage} ${errno}`);
  });

  test("what a user can mend has a hint", () => {
    assert.match(startFailure(9, EACCES).hint ?? "", /chmod \+x/);
    assert.match(startFailure(9, ENOEXEC).hint ?? "", /processor.*#!/);
    for (const [stage, errno] of [
      [9, ENOENT],
      [9, ETXTBSY],
      [2, ENOSPC],
      [10, ENOENT],
      [8, ENOENT],
      [6, ENOENT],
    ] as const)
      assert.ok(startFailure(stage, errno).hint, `${stage} ${errno}`);
  });

  test("signals have their usual names", () => {
    assert.deepEqual([6, 9, 15, 29, 31, 34, 37, 64].map(signalName), [
      "SIGABRT",
      "SIGKILL",
      "SIGTERM",
      "SIGIO",
      "SIGSYS",
      "SIGRTMIN+0",
      "SIGRTMIN+3",
      "SIGRTMIN+30",
    ]);
  });

  test("an end says code or signal, never both", () => {
    const payload = Buffer.alloc(28);
    payload.writeInt32LE(-9);
    payload.writeUInt32LE(2500, 4);
    payload.writeUInt32LE(1500, 12);
    payload.writeUInt32LE(77, 20);
    assert.deepEqual(decodeEnd(2, payload, 0), {
      cause: "timeout",
      code: undefined,
      signal: "SIGKILL",
      wallMs: 2.5,
      cpuMs: 1.5,
      maxRssKiB: 77,
    });
    payload.writeInt32LE(0);
    assert.deepEqual(decodeEnd(0, payload, 0).code, 0);
    assert.throws(() => decodeEnd(9, payload, 0), { kind: "Internal" });
  });
});
