import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { hasCode } from "#core/errors.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { waitUntil } from "../support/wait.ts";

/** A directory for the builds of one node, which the package manager's own user can reach. */
function scratch(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), "dsec-scratch-"));
  chmodSync(path, 0o755);
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** Begins to build a Debian base; resolves with its outcome in the middle of the build. */
async function startBuild(node: TestNode, folder: string): Promise<{ readonly outcome: Promise<string> }> {
  const outcome = node.client.artifacts.build({ name: "base" }).then(() => "built", String);
  await waitUntil("the builder runs", 60_000, () => buildersIn(folder).length > 0 && readdirSync(folder).length > 0);
  return { outcome };
}

/** Processes other than the node that were told to work in the folder. */
function buildersIn(folder: string): readonly string[] {
  const pids = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid));
  return pids.filter((pid) => {
    const environment = readProc(pid, "environ");
    return environment.includes(`TMPDIR=${folder}/`) && environment.includes("DEBIAN_FRONTEND");
  });
}

function readProc(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return "";
    throw error;
  }
}

describe("the build of a Debian base", () => {
  test("ends with a node that stops, and leaves nothing", async () => {
    using temp = scratch();
    await using node = await startNode({ env: { TMPDIR: temp.path } });
    const { outcome } = await startBuild(node, temp.path);
    assert.equal(await node.stop(), 0);
    assert.match(await outcome, /broke|nobody answers|closing/);
    assert.deepEqual(buildersIn(temp.path), []);
    assert.deepEqual(readdirSync(temp.path), []);
    assert.deepEqual(readdirSync(join(node.dataDir, "images/tmp")), []);
  });

  test("ends with a node that is killed, and the next node removes its files", async () => {
    using temp = scratch();
    await using node = await startNode({ env: { TMPDIR: temp.path } });
    const { outcome } = await startBuild(node, temp.path);
    await node.kill();
    assert.notEqual(await outcome, "built");
    await waitUntil("the builder is gone", 5_000, () => buildersIn(temp.path).length === 0);
    await node.start();
    assert.deepEqual(readdirSync(temp.path), []);
    assert.deepEqual(readdirSync(join(node.dataDir, "images/tmp")), []);
  });
});
