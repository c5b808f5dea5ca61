import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Client } from "#sdk";
import { debianTar, fetchSource, importDebian, runInTree, whyNoDebian } from "../support/debian.ts";
import { startNode, type TestNode } from "../support/node.ts";

const SANDBOXES = 20;
const LIMIT_MS = 10 * 60_000;

interface Project {
  /** The Debian source package. */
  readonly name: string;
  readonly line: string;
  /** The lines of the output that tell which tests ran and how they went. */
  readonly verdict: RegExp;
  /** Fewer verdicts mean that the suite did not run. */
  readonly atLeast: number;
}

const PROJECTS: readonly Project[] = [
  {
    name: "zlib",
    line: "cd /src/zlib && CFLAGS=-O0 ./configure >/dev/null && make check 2>&1",
    verdict: /^.*(?:OK|FAILED).*$/gm,
    atLeast: 6,
  },
  {
    name: "toolz",
    // A release whose Python is newer than the project has tests that fail: the same ones everywhere.
    line: "cd /src/toolz && { python3 -m pytest -v -p no:cacheprovider toolz tlz 2>&1 || test $? = 1; }",
    verdict: /^\S+::\S+ (?:PASSED|FAILED|SKIPPED|ERROR)/gm,
    atLeast: 150,
  },
];

const reason = whyNoDebian();

describe("suites of real projects, as workspace over a Debian base and a toolkit", { skip: reason ?? false }, () => {
  let scratch: string;
  let node: TestNode;

  before(async () => {
    scratch = mkdtempSync(join(tmpdir(), "dsec-projects-"));
    node = await startNode({ words: ["--memory-overcommit=100", "--cpu-overcommit=100"] });
    await importDebian(node.client, "debian");
    // What both suites need; the toolkit brings it to any base.
    const tools = await debianTar("tools");
    mkdirSync(join(scratch, "outside"));
    await finished(spawn("tar", ["-xf", tools, "-C", join(scratch, "outside")]));
    await importFolder(node.client, join(scratch, "outside"), "tools", "toolkit");
  });

  after(async () => {
    rmSync(scratch, { recursive: true, force: true });
    await node[Symbol.asyncDispose]();
  });

  for (const project of PROJECTS) {
    test(`${project.name} says the same in ${SANDBOXES} sandboxes at once as outside`, async (t) => {
      const workspace = join(scratch, project.name);
      const isThere = await fetchSource(project.name, scratch, join(workspace, "src", project.name));
      if (!isThere) return t.skip(`the archive of this host has no sources of ${project.name}`);
      await importFolder(node.client, workspace, project.name, "workspace");
      await finished(spawn("cp", ["-a", join(workspace, "src"), join(scratch, "outside")]));
      const expected = verdicts(await runInTree(join(scratch, "outside"), project.line), project);
      assert.ok(expected.length >= project.atLeast, `${expected.length} verdicts outside`);
      const results = await Promise.all(Array.from({ length: SANDBOXES }, () => runInside(node.client, project)));
      for (const result of results) assert.deepEqual(result, expected);
    });
  }
});

async function runInside(client: Client, project: Project): Promise<readonly string[]> {
  await using sandbox = await client.sandboxes.create({
    base: "debian",
    workspace: project.name,
    toolkits: ["tools"],
    resources: { memoryMiB: 512, pids: 256 },
  });
  const result = await sandbox.run(project.line, { timeLimitMs: LIMIT_MS, timeoutMs: LIMIT_MS });
  assert.ok(result.ok, `${JSON.stringify(result.status)}\n${result.stdoutText.slice(-2_000)}`);
  return verdicts(result.stdoutText, project);
}

function verdicts(output: string, { verdict }: Project): readonly string[] {
  return (output.match(verdict) ?? []).map((line) => line.trim()).sort();
}

/** Without device nodes, which a sandbox brings itself. */
async function importFolder(
  client: Client,
  folder: string,
  name: string,
  kind: "workspace" | "toolkit",
): Promise<void> {
  const words = ["--numeric-owner", "--exclude=./dev/*", "-C", folder, "-c", "."];
  const tar = spawn("tar", words, { stdio: ["ignore", "pipe", "inherit"] });
  const done = finished(tar);
  await client.artifacts.import(tar.stdout, { name, kind, timeoutMs: LIMIT_MS });
  await done;
}

async function finished(child: ReturnType<typeof spawn>): Promise<void> {
  const code = await new Promise((resolve, reject) => child.once("exit", resolve).once("error", reject));
  assert.equal(code, 0);
}
