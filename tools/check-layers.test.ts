import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkLayers, layerOf } from "./check-layers.ts";
import { checkPeers } from "./check-peers.ts";
import { treeOf } from "./tree.ts";

const MANIFEST = JSON.stringify({
  imports: { "#api/*": "./api/*", "#core/*": "./core/*", "#edge/*": "./edge/*", "#host/*": "./host/*" },
});

function check(path: string, text: string): string[] {
  return checkLayers(treeOf({ "package.json": MANIFEST, [path]: text })).map(({ message }) => message);
}

describe("checkLayers", () => {
  const allowed: readonly (readonly [string, string, string])[] = [
    ["a layer to import what the table names", "edge/a.ts", 'import { a } from "#core/a.ts";'],
    ["a layer to import itself, relatively and by name", "edge/a.ts", 'import "./b.ts"; import "#edge/b.ts";'],
    ["a test to join what the black-box suites may", "edge/a.test.ts", 'import "#host/a.ts";'],
    ["the SDK to import types of the contract", "client/sdk/a.ts", 'import type { A } from "#api/a.ts";'],
    ["the checks to read the table", "tools/a.ts", 'import "../layers.ts";'],
    ["core to compute with built-in modules", "core/a.ts", 'import { createHash } from "node:crypto";'],
    ["core to name a type of the outside", "core/a.ts", 'import type { Readable } from "node:net";'],
    ["core to have a property called process", "core/a.ts", "a.process.b;"],
  ];
  for (const [what, path, text] of allowed) test(`allows ${what}`, () => assert.deepEqual(check(path, text), []));

  const refused: readonly (readonly [string, string, string, string])[] = [
    ["an import that the table lacks", "edge/a.ts", 'import "#host/a.ts";', "edge may not import host"],
    ["it for types, too", "core/a.ts", 'import type { A } from "#edge/a.ts";', "core may not import edge"],
    ["a dynamic import", "edge/a.ts", 'await import("#host/a.ts");', "edge may not import host"],
    [
      "a worker elsewhere",
      "edge/a.ts",
      'new URL("../host/a.ts", import.meta.url);',
      "../host/a.ts leaves edge: use the # import of host",
    ],
    ["a relative way out", "edge/a.ts", 'import "../core/a.ts";', "../core/a.ts leaves edge: use the # import of core"],
    [
      "code of a layer that lends its types",
      "client/sdk/a.ts",
      'import { type A } from "#api/a.ts";',
      "client/sdk may import api for its types only: use import type",
    ],
    ["a folder without a layer", "other/a.ts", 'import "#core/a.ts";', "other/a.ts is in no layer of layers.ts"],
    [
      "the file system in core",
      "core/a.ts",
      'import { open } from "node:fs/promises";',
      "node:fs/promises reaches outside the process: take what it does as an argument",
    ],
    [
      "the environment in core",
      "core/a.ts",
      "const a = process.env.A;",
      "process. reaches outside the process: take what it does as an argument",
    ],
    ["a package in the SDK", "client/sdk/a.ts", 'import "undici";', "undici: the SDK has no run-time dependency"],
  ];
  for (const [what, path, text, message] of refused) {
    test(`refuses ${what}`, () => assert.deepEqual(check(path, text), [message]));
  }
});

test("layerOf takes the longest prefix and whole folder names", () => {
  assert.equal(layerOf("backends/fake/a.ts"), "backends/fake");
  assert.equal(layerOf("corex/a.ts"), undefined);
});

test("checkPeers names the file that a backend lacks", () => {
  const files = ["backend.ts", "handle.ts", "probe.ts"].map((name) => [`backends/a/${name}`, ""]);
  const problems = checkPeers(treeOf(Object.fromEntries(files)));
  assert.deepEqual(
    problems.map(({ path, message }) => `${path} ${message}`),
    ["backends/a config.ts is missing"],
  );
});

test("checkPeers lets a backend take a part from below host/ once it does, and have no second one", () => {
  const subpaths = JSON.stringify({ imports: { "#host/*": "./host/*" } });
  const others = {
    "backends/vm/probe.ts": "",
    "backends/vm/config.ts": "",
    "host/vmm/handle.ts": "",
    "package.json": subpaths,
  };
  const faults = (files: Record<string, string>) =>
    checkPeers(treeOf({ ...others, ...files })).map(({ path, message }) => `${path} ${message}`);
  const takes = { "backends/vm/backend.ts": 'import { handleOf } from "#host/vmm/handle.ts";' };
  assert.deepEqual(faults(takes), []);
  assert.deepEqual(faults({ "backends/vm/backend.ts": "" }), [
    "backends/vm backend.ts does not take host/vmm/handle.ts",
  ]);
  assert.deepEqual(faults({ ...takes, "backends/vm/handle.ts": "" }), [
    "backends/vm handle.ts is there beside host/vmm/handle.ts",
  ]);
});
