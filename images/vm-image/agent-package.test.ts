import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { makeAgentPackage } from "./agent-package.ts";

test("the package has the agent as a service that starts with the system, and is the same each time", async () => {
  using directory = temporaryDirectory();
  const agent = join(directory.path, "agent");
  writeFileSync(agent, "program", { mode: 0o600 });
  const [first, second] = ["first.deb", "second.deb"].map((name) => join(directory.path, name)) as [string, string];
  for (const target of [first, second]) await makeAgentPackage({ agent, version: "1.2", target });
  assert.ok(readFileSync(first).equals(readFileSync(second)));
  assert.deepEqual(readdirSync(directory.path).sort(), ["agent", "first.deb", "second.deb"]);
  const told = (...words: string[]) => execFileSync("dpkg-deb", words, { encoding: "utf8" });
  assert.equal(told("--field", first, "Package", "Version", "Architecture"), PACKAGE);
  const files = told("--contents", first);
  assert.match(files, /^-rwxr-xr-x root\/root .* \.\/usr\/lib\/dsec\/dsec-agent$/m);
  assert.match(files, /sysinit\.target\.wants\/dsec-agent\.service -> \.\.\/dsec-agent\.service$/m);
  const root = join(directory.path, "root");
  told("--raw-extract", first, root);
  for (const script of ["postinst", "prerm"]) execFileSync("sh", ["-n", join(root, "DEBIAN", script)]);
  assert.equal(readFileSync(join(root, "usr/lib/dsec/dsec-agent"), "utf8"), "program");
});

const PACKAGE = "Package: dsec-agent\nVersion: 1.2\nArchitecture: amd64\n";

test("without a place or a program there is no package, and nothing is left", async () => {
  using directory = temporaryDirectory();
  const [agent, target] = [join(directory.path, "agent"), join(directory.path, "made.deb")];
  await assert.rejects(makeAgentPackage({ agent, version: "1", target }), { code: "ENOENT" });
  writeFileSync(agent, "program");
  await assert.rejects(makeAgentPackage({ agent, version: "1", target: "/nowhere/made.deb" }), { code: "ENOENT" });
  assert.deepEqual(readdirSync(directory.path), ["agent"]);
});
