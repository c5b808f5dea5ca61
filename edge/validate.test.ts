import assert from "node:assert/strict";
import { test } from "node:test";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type LayerDigest, type SandboxSpec } from "#core/sandbox.ts";
import { aCommand } from "#core/suites/node-suite.ts";
import { validateCommand, validateLifetime, validatePath, validateSandbox } from "#edge/validate.ts";

const edge = parseEdgeId("fake");

function refused(field: string, changes: Partial<SandboxSpec>): void {
  assert.throws(
    () => validateSandbox(aFakeSpec(changes), edge),
    { kind: "InvalidArgument", details: { field } },
    field,
  );
}

test("a sandbox that can be made is accepted", () => {
  validateSandbox(aFakeSpec({ rlimits: { nofile: { soft: 10, hard: 20 } }, layers: [digest("a")] }), edge);
});

test("each number outside its bounds is refused by its name", () => {
  const bad = { cpus: [0, -1, NaN, Infinity], memoryMiB: [0, 0.5, NaN], swapMiB: [-1], pids: [0], diskMiB: [0, -1] };
  for (const [name, values] of Object.entries(bad)) {
    for (const value of values) refused(`resources.${name}`, { resources: { ...DEFAULT_RESOURCES, [name]: value } });
  }
  refused("rlimits.nofile.hard", { rlimits: { nofile: { soft: 10, hard: 5 } } });
  for (const idleTimeoutMs of [0, -1, NaN]) {
    assert.throws(() => validateLifetime({ idleTimeoutMs, maxLifetimeMs: undefined }), { kind: "InvalidArgument" });
  }
});

test("text that cannot be meant is refused by its name", () => {
  refused("user", { user: "" });
  refused("workdir", { workdir: "relative" });
  refused("hostname", { hostname: "a\0b" });
  refused("env", { env: { "A=B": "x" } });
  refused("env", { env: { A: "x\0y" } });
  refused("layers", { layers: ["sha256:zz" as LayerDigest] });
  refused("layers", { layers: Array.from({ length: 65 }, () => digest("a")) });
});

test("a command's arguments are bounded and free of NUL", () => {
  validateCommand(aCommand(["x".repeat(1024 * 1024)]));
  const bad = {
    argv: [{ argv: [] }, { argv: ["x".repeat(2 * 1024 * 1024)] }, { argv: [new Uint8Array([1, 0])] }],
    cwd: [{ cwd: "relative" }],
    idempotencyKey: [{ idempotencyKey: "k".repeat(257) }],
    outputCapBytes: [{ outputCapBytes: 0 }],
  };
  for (const [field, changes] of Object.entries(bad)) {
    for (const change of changes) {
      assert.throws(() => validateCommand(aCommand(["true"], change)), { kind: "InvalidArgument", details: { field } });
    }
  }
});

test("a path is absolute, bounded and free of NUL", () => {
  validatePath(Buffer.from([0x2f, 0xff]));
  for (const path of ["", "a", "/a\0b", `/${"x".repeat(4095)}`]) {
    assert.throws(() => validatePath(Buffer.from(path)), { kind: "InvalidArgument", details: { field: "path" } });
  }
});

function digest(letter: string): LayerDigest {
  return `sha256:${letter.repeat(64)}` as LayerDigest;
}
