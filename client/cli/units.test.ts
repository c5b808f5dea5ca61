import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CliError } from "./cli-error.ts";
import { exitStatusOf, exitStatusOfError, noteOn } from "./exit-status.ts";
import { ageText, bytesText, printable, table } from "./io.ts";
import { pair, positive, several, sizeMiB, timeMs, timeOrNone } from "./units.ts";

const wrong = { kind: "InvalidArgument" };
const ended = { wallMs: 1, cpuMs: 1, maxRssKiB: 1 };

describe("options", () => {
  test("sizes need a unit and are above zero", () => {
    assert.deepEqual(["512MiB", "4G", "1.5GiB", "1TiB"].map(sizeMiB("--memory")), [512, 4096, 1536, 1_048_576]);
    for (const text of ["0", "0MiB", "-1MiB", "NaN", "512", "1e3MiB", "0.3MiB", "9999999999999GiB", "MiB", ""]) {
      assert.throws(
        () => sizeMiB("--memory")(text),
        { ...wrong, message: /--memory: ".*" is not a size such as/ },
        text,
      );
    }
  });

  test("times need a unit and are above zero", () => {
    assert.deepEqual(["250ms", "1.5s", "2h", "1d"].map(timeMs("--limit")), [250, 1500, 7_200_000, 86_400_000]);
    for (const text of ["0s", "-1s", "5", "1 s", "soon", ""]) assert.throws(() => timeMs("--limit")(text), wrong, text);
  });

  test("a limit of time may be none", () => {
    assert.deepEqual(["none", "90s"].map(timeOrNone("--limit")), ["none", 90_000]);
    for (const text of ["None", "0s", "null", ""]) assert.throws(() => timeOrNone("--limit")(text), wrong, text);
  });

  test("numbers are above zero", () => {
    assert.equal(positive("--cpus")("0.5"), 0.5);
    for (const text of ["0", "-1", "NaN", "Infinity", "1e9", "0x10", ""]) {
      assert.throws(() => positive("--cpus")(text), wrong, text);
    }
  });

  test("pairs and lists gather", () => {
    assert.deepEqual(pair("-e")("B=2=3", pair("-e")("A=")), { A: "", B: "2=3" });
    for (const text of ["A", "=1", ""]) assert.throws(() => pair("-e")(text), wrong, text);
    assert.deepEqual(several("b", several("a")), ["a", "b"]);
  });
});

describe("the exit status", () => {
  test("is the command's own, or 128 and the signal, as in a shell", () => {
    assert.equal(exitStatusOf({ ...ended, cause: "exited", code: 0 }), 0);
    assert.equal(exitStatusOf({ ...ended, cause: "exited", code: 255 }), 255);
    assert.equal(exitStatusOf({ ...ended, cause: "signaled", signal: "SIGTERM" }), 143);
    assert.equal(exitStatusOf({ ...ended, cause: "signaled", signal: "SIGRTMIN+1" }), 163);
    assert.equal(exitStatusOf({ ...ended, cause: "timeout", signal: "SIGKILL" }), 137);
    assert.equal(exitStatusOf({ ...ended, cause: "agent-lost" }), 125);
  });

  test("says in words what the number does not", () => {
    assert.equal(noteOn({ ...ended, cause: "exited", code: 137 }), undefined);
    assert.equal(noteOn({ ...ended, cause: "signaled", signal: "SIGKILL" }), undefined);
    for (const cause of ["timeout", "out-of-memory", "sandbox-stopped", "agent-lost"] as const) {
      assert.ok(noteOn({ ...ended, cause }) !== undefined);
    }
  });

  test("of a failure is 127, 126 or 125", () => {
    assert.equal(exitStatusOfError(new CliError("CommandNotFound", "x")), 127);
    assert.equal(exitStatusOfError(new CliError("CommandNotExecutable", "x")), 126);
    assert.equal(exitStatusOfError(new CliError("NotFound", "x")), 125);
    assert.equal(exitStatusOfError(new Error("x")), 125);
  });
});

describe("text for people", () => {
  test("is aligned and cannot drive the terminal", () => {
    assert.equal(
      table(
        ["A", "B"],
        [
          ["long one", "1"],
          ["x", "\u001b[31m"],
        ],
      ),
      "A         B\nlong one  1\nx         \\x1b[31m\n",
    );
    assert.equal(printable("a\nb\u009b"), "a\\x0ab\\x9b");
    assert.equal(printable("a\u202eb\u2066"), "a\\u{202e}b\\u{2066}");
  });

  test("has sizes and ages in fitting units", () => {
    assert.deepEqual([0, 1536, 3 * 1024 ** 3].map(bytesText), ["0 B", "1.5 KiB", "3 GiB"]);
    assert.deepEqual([-5, 61_000, 3_600_000, 400_000_000].map(ageText), ["0s", "61s", "60m", "4d"]);
  });
});
