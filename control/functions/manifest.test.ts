import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { Manifests } from "./manifest.ts";

const SHELL = { base: "busybox", source: "main.sh", run: ["sh", "main.sh"] };

let folder: string;
let manifests: Manifests;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dsec-runtimes-"));
  manifests = new Manifests([join(folder, "shipped"), join(folder, "own"), join(folder, "none")]);
  write("shipped/sh", SHELL);
});
afterEach(() => rmSync(folder, { recursive: true }));

function write(path: string, manifest: object): void {
  mkdirSync(join(folder, path), { recursive: true });
  writeFileSync(join(folder, path, "runtime.json"), JSON.stringify(manifest));
}

test("a runtime of a later directory replaces the one of that name, until its folder goes", () => {
  write("own/sh", { ...SHELL, base: "mine" });
  write("own/other", SHELL);
  mkdirSync(join(folder, "own/.hidden"));
  assert.deepEqual(manifests.names, ["other", "sh"]);
  assert.equal(manifests.get("sh").base, "mine");
  rmSync(join(folder, "own/sh"), { recursive: true });
  assert.equal(manifests.get("sh").base, "busybox");
});

test("what is written to a manifest or its script counts from the next look on", () => {
  const warm = { kind: "start", argv: ["sh", "-c"], script: "wait.sh" };
  write("own/sh", { ...SHELL, warm });
  writeFileSync(join(folder, "own/sh/wait.sh"), "read a");
  assert.equal(manifests.get("sh").warm?.script, "read a");
  assert.equal(manifests.get("sh"), manifests.get("sh"));
  writeFileSync(join(folder, "own/sh/wait.sh"), "read b, and more");
  assert.equal(manifests.get("sh").warm?.script, "read b, and more");
  write("own/sh", { ...SHELL, limits: { runMs: 77 } });
  assert.deepEqual([manifests.get("sh").warm, manifests.get("sh").limits.runMs], [undefined, 77]);
});

test("an unknown name is told what there is, and one that leads elsewhere is unknown", () => {
  for (const name of ["none", "../shipped/sh", ".", ""]) {
    assert.throws(() => manifests.get(name), { kind: "NotFound", hint: "there are: sh" });
  }
});

test("a manifest that cannot be read says which file, and what is wrong in it", () => {
  const broken: readonly [object, RegExp][] = [
    [{ ...SHELL, base: 3 }, /base/],
    [{ ...SHELL, nice: true }, /nice/],
    [{ ...SHELL, warm: { kind: "fork", argv: ["x"], script: "none" } }, /ENOENT/],
  ];
  for (const [manifest, why] of broken) {
    write("own/bad", manifest);
    assert.throws(() => manifests.get("bad"), {
      kind: "InvalidArgument",
      message: why,
      hint: /own\/bad\/runtime\.json/,
    });
  }
  mkdirSync(join(folder, "own/empty"));
  assert.throws(() => manifests.get("empty"), { kind: "InvalidArgument", message: /ENOENT/ });
});
