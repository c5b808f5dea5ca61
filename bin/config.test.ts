import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { EDGE_DEFAULTS } from "#edge/config.ts";
import { loadNodeConfig, loadPlaces, nodeSettingsHelp } from "./config.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-config-"));
after(() => rmSync(root, { recursive: true, force: true }));

describe("the settings of this machine", () => {
  test("move both directories for every command", () => {
    const env = { DSEC_DATA_DIR: "/d", DSEC_RUN_DIR: "/r" };
    assert.deepEqual(loadPlaces({ env }), { dataDir: "/d", runDir: "/r" });
    const config = loadNodeConfig([], env);
    assert.deepEqual([config.dataDir, config.runDir], ["/d", "/r"]);
  });

  test("of a node do not disturb commands that only look for it, misspelt ones do", () => {
    const env = { DSEC_MAX_SANDBOXES: "5", DSEC_LOG_LEVEL: "warn", DSEC_URL: "http://x", DSEC_TOKEN: "t" };
    assert.deepEqual(loadPlaces({ env }), { dataDir: "/var/lib/dsec", runDir: "/run/dsec" });
    assert.equal(loadNodeConfig([], env).maxSandboxes, 5);
    assert.throws(() => loadPlaces({ env: { DSEC_MAX_SANDBOX: "5" } }), { kind: "InvalidArgument" });
  });

  test("come from a config file under flags and environment", () => {
    const file = join(root, "node.json");
    writeFileSync(file, '{"version":1,"maxSandboxes":1,"edge":"file","logLevel":"warn"}');
    const config = loadNodeConfig(["--config", file, "--max-sandboxes=3"], { DSEC_EDGE: "env" });
    assert.deepEqual([config.maxSandboxes, config.edge, config.logLevel], [3, "env", "warn"]);
    assert.throws(() => loadNodeConfig(["--config", join(root, "none")], {}), {
      kind: "InvalidArgument",
      message: /none/,
    });
  });

  test("promise what the edge promises by default", () => {
    const { cpuOvercommit, memoryOvercommit, memoryReserve } = loadNodeConfig([], {});
    const promised = { cpuOvercommit, memoryOvercommit, memoryReserveMiB: memoryReserve };
    assert.deepEqual({ ...EDGE_DEFAULTS, ...promised }, EDGE_DEFAULTS);
    assert.equal(loadNodeConfig(["--memory-reserve=2GiB"], {}).memoryReserve, 2048);
  });

  test("are all in the help", () => {
    for (const word of ["--data-dir PATH", "--listen TEXT", "DSEC_VOLUME_SIZE"])
      assert.ok(nodeSettingsHelp().includes(word));
  });
});
