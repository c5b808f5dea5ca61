import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { Catalogue, MemoryArtifactTable, type NewArtifact } from "#images/catalogue.ts";
import type { ArtifactMaker } from "../artifacts.ts";
import { Runtimes } from "./runtimes.ts";

const LAYER = `sha256:${"a".repeat(64)}` as NewArtifact["layers"][number];
const BASE: NewArtifact = {
  kind: "base",
  layers: [LAYER],
  config: { env: { A: "base", B: "base" }, user: undefined, workdir: undefined },
  sizeBytes: 1,
  provenance: "a test",
};

let folder: string;
let builds: PromiseWithResolvers<NewArtifact>[];
let progress: (line: string) => void;
let runtimes: Runtimes;
let catalogue: Catalogue;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dsec-runtimes-"));
  builds = [];
  catalogue = new Catalogue(new MemoryArtifactTable(), new ManualClock());
  // Bases are made by hand here: what is tested is who waits for them.
  const maker: Pick<ArtifactMaker, "buildDebian"> = {
    buildDebian(request) {
      progress = request.progress;
      const build = Promise.withResolvers<NewArtifact>();
      builds.push(build);
      return build.promise;
    },
  };
  runtimes = new Runtimes({ directories: [folder], catalogue, maker: maker as ArtifactMaker });
  add("sh", { base: "made", debian: ["dash"], env: { B: "runtime" }, limits: { pids: 7 } });
});
afterEach(() => rmSync(folder, { recursive: true }));

function add(name: string, manifest: object): void {
  mkdirSync(join(folder, name));
  writeFileSync(join(folder, name, "runtime.json"), JSON.stringify({ source: "main", run: ["main"], ...manifest }));
}

const asked = (signal = new AbortController().signal) => ({ project: "p", signal });

test("a base that is missing is made once for all who ask, and then is there for every project", async () => {
  assert.equal((await runtimes.list("p"))[0]?.ready, false);
  const heard: string[] = [];
  const calls = [
    runtimes.resolve("sh", { ...asked(), progress: (line) => heard.push(line) }),
    runtimes.resolve("sh", asked()),
    runtimes.prepare("sh", asked()),
  ] as const;
  // Whoever asks looks into the catalogue first.
  while (builds.length === 0) await new Promise(setImmediate);
  progress("half");
  builds[0]?.resolve(BASE);
  const [first] = await Promise.all(calls);
  assert.deepEqual([builds.length, heard], [1, ["half"]]);
  assert.deepEqual(first.runtime.layers, [LAYER]);
  assert.deepEqual([first.runtime.env, first.limits.pids], [{ A: "base", B: "runtime" }, 7]);
  assert.equal((await runtimes.list("q"))[0]?.ready, true);
});

test("a call that cannot wait for a base is told to come again, and the base is made all the same", async () => {
  const leaver = new AbortController();
  const call = runtimes.resolve("sh", asked(leaver.signal));
  while (builds.length === 0) await new Promise(setImmediate);
  leaver.abort(new Error("no time"));
  await assert.rejects(call, { kind: "Unavailable", hint: /prepare/ });
  const next = runtimes.resolve("sh", asked());
  builds[0]?.resolve(BASE);
  await next;
  assert.equal(builds.length, 1);
});

test("a base that could not be made is tried again by the next who asks", async () => {
  const call = runtimes.resolve("sh", asked());
  while (builds.length === 0) await new Promise(setImmediate);
  builds[0]?.reject(new Error("no packages"));
  await assert.rejects(call, /no packages/);
  const again = runtimes.resolve("sh", asked());
  while (builds.length === 1) await new Promise(setImmediate);
  builds[1]?.resolve(BASE);
  assert.deepEqual((await again).runtime.layers, [LAYER]);
});

test("a runtime without packages needs its base, and every toolkit, to be there", async () => {
  add("own", { base: "mine", toolkits: ["tool"] });
  await assert.rejects(runtimes.resolve("own", asked()), { kind: "NotFound", hint: /import or build mine/ });
  await catalogue.put("p", "mine", BASE);
  await assert.rejects(runtimes.resolve("own", asked()), { kind: "NotFound", message: /tool/ });
  const toolLayer = `sha256:${"b".repeat(64)}` as NewArtifact["layers"][number];
  await catalogue.put("p", "tool", { ...BASE, kind: "toolkit", layers: [toolLayer] });
  assert.deepEqual((await runtimes.resolve("own", asked())).runtime.layers, [LAYER, toolLayer]);
});
