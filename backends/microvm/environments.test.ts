import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { MachineSpec, Vmm } from "#host/vmm/vmm.ts";
import type { LayerFile } from "#images/layers/mounts.ts";
import { Environments } from "./environments.ts";
import { LayerRegions } from "./regions.ts";
import { aSpec } from "./test-support/spec.ts";

describe("templates of environments whose machines do not start", () => {
  const spec = aSpec();
  let root: string;
  let file: LayerFile;
  before(() => {
    root = mkdtempSync(join(tmpdir(), "dsec-environments-"));
    file = { path: join(root, "layer"), name: "layer", sizeBytes: 5, isWhole: true };
    writeFileSync(file.path, "layer");
  });
  after(() => rmSync(root, { recursive: true }));

  async function open(name: string, log: (line: string) => void) {
    const started: MachineSpec[] = [];
    const vmm: Vmm = {
      name: "none",
      identity: () => "none",
      start: (machine) => {
        started.push(machine);
        return Promise.reject(new Error("no machine starts here"));
      },
      adopt: () => Promise.resolve(undefined),
    };
    const [dir, runDir] = [join(root, name), join(root, `${name}-run`)];
    mkdirSync(runDir);
    const environments = await Environments.open({
      ...{ vmm, log, dir, wantsRegions: true, place: { dir: runDir, uid: 0, cgroups: [] } },
      regions: await LayerRegions.open(join(root, `${name}-regions`)),
      machine: async (_, { disks, regions }) => ({
        ...{ accelerator: "tcg", processors: 1, memory: { sizeMiB: 128 }, kernel: "", initramfs: "" },
        ...{ disks, regions, devices: undefined, lender: undefined },
      }),
      identity: (_, { regions }) => `${regions.length} regions`,
    });
    return { environments, started, dir };
  }

  test("layers that cannot be memory of a machine become its disks, with the reason in the log, and nothing is left", async () => {
    const lines: string[] = [];
    const { environments, started, dir } = await open("first", (line) => lines.push(line));
    const layers = [[file]];
    assert.equal(await environments.find(spec, layers), undefined);
    assert.equal(started.length, 0, "the first sandbox of an environment needs no template");
    assert.equal(await environments.find(spec, layers), undefined);
    assert.deepEqual(
      started.map(({ regions }) => regions.length),
      [1],
    );
    assert.match(lines.join("\n"), /layers become disks of machines.*no machine starts here/s);
    // Of disks the second is the first that needs one, too; that they do not start is nobody's choice.
    assert.equal(await environments.find(spec, layers), undefined);
    await assert.rejects(environments.find(spec, layers));
    assert.deepEqual(
      started.map(({ regions }) => regions.length),
      [1, 0],
    );
    assert.deepEqual(readdirSync(dir), []);
  });

  test("layers that are not all here are disks from the start", async () => {
    const { environments, started } = await open("second", assert.fail);
    const layers = [[{ ...file, isWhole: false }]];
    assert.equal(await environments.find(spec, layers), undefined);
    await assert.rejects(environments.find(spec, layers));
    assert.deepEqual(
      started.map(({ regions, disks }) => [regions.length, disks.filter((disk) => disk.file === file.path).length]),
      [[0, 1]],
    );
  });
});
