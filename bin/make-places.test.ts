import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { makePlaces } from "./make-places.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-places-"));
after(() => rmSync(root, { recursive: true }));

describe("the directories of a node", () => {
  test("are made with all above them, empty, and may exist already", () => {
    symlinkSync(root, join(root, "link"));
    const places = { dataDir: join(root, "a/b/data/"), runDir: join(root, "link/run") };
    for (let again = 0; again < 2; again++) makePlaces(places);
    for (const dir of [places.dataDir, places.runDir]) {
      assert.equal(statSync(dir).mode & 0o7777, 0o711);
      assert.deepEqual(readdirSync(dir), []);
    }
  });

  test("are refused by the name of the setting where nothing can be made", () => {
    writeFileSync(join(root, "file"), "");
    symlinkSync(join(root, "nowhere"), join(root, "dangling"));
    const good = join(root, "good");
    for (const bad of [
      "/proc",
      "/proc/x/y",
      "/sys/x",
      join(root, "file"),
      join(root, "file/x"),
      join(root, "dangling"),
    ]) {
      const refusal = (setting: RegExp) => ({ kind: "InvalidArgument", message: setting });
      assert.throws(
        () => makePlaces({ dataDir: bad, runDir: good }),
        refusal(/--data-dir \(DSEC_DATA_DIR\): .*\(E[A-Z]+\)/),
      );
      assert.throws(
        () => makePlaces({ dataDir: good, runDir: bad }),
        refusal(/--run-dir \(DSEC_RUN_DIR\): .*\(E[A-Z]+\)/),
      );
    }
  });

  test("below /proc end every command that would make them, at once", () => {
    const entry = join(import.meta.dirname, "dsec.ts");
    const run = join(root, "run-of-commands");
    for (const words of [["up"], ["run", "--base", "host-busybox", "--", "true"]]) {
      for (const places of [
        { DSEC_DATA_DIR: "/proc/dsec/data", DSEC_RUN_DIR: run },
        { DSEC_DATA_DIR: run, DSEC_RUN_DIR: "/proc" },
      ]) {
        const env = { PATH: process.env.PATH, ...places };
        const { status, stderr } = spawnSync(process.execPath, [entry, ...words], {
          env,
          timeout: 20_000,
          encoding: "utf8",
        });
        assert.equal(status, 125, stderr);
        assert.match(stderr, /cannot be a directory of the node \(ENOENT\)\nhint: /);
      }
    }
  });
});
