import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { readMounts } from "#host/sys/mountinfo.ts";
import { emptyErofs } from "./empty-erofs.ts";
import type { HostFact } from "./fact.ts";
import { probeHost } from "./probe.ts";
import { toolLooks } from "./tools.ts";

/** The probes of other processes have theirs elsewhere. */
const scratch = mkdtempSync(join(tmpdir(), "dsec-probe-test-"));
process.env.TMPDIR = scratch;
after(() => rmSync(scratch, { recursive: true }));

const leftovers = () => ({
  mounts: readMounts().filter((entry) => entry.target.startsWith(scratch)),
  temporary: readdirSync(scratch),
  loops: readdirSync("/sys/block").filter((name) => name.startsWith("loop") && attachedTo(name).startsWith(scratch)),
});

describe("probing this host", () => {
  let facts: readonly HostFact[];
  let earlier: ReturnType<typeof leftovers>;
  let tookMs: number;

  before(async () => {
    earlier = leftovers();
    const startMs = performance.now();
    facts = await probeHost({ dataDir: "/var/lib/dsec/not/there" });
    tookMs = performance.now() - startMs;
  });
  const fact = (name: string) => facts.find((candidate) => candidate.name === name);

  test("every fact says why it matters, and how to get it unless it works", (t) => {
    for (const { name, state, why, how, detail } of facts) {
      t.diagnostic(`${state.padEnd(8)} ${name}: ${detail}`);
      assert.ok(why !== "" && detail !== "", name);
      assert.equal(how === "", state === "works", name);
    }
    assert.equal(new Set(facts.map(({ name }) => name)).size, facts.length);
  });

  test("what the container backend needs was really tried and works here", () => {
    for (const name of ["root", "user namespaces", "cgroups", "overlay over id-mapped layers", "seccomp"]) {
      assert.equal(fact(name)?.state, "works", `${name}: ${fact(name)?.detail}`);
    }
  });

  test("the host is as it was before", () => {
    assert.deepEqual(leftovers(), earlier);
  });

  test("it takes bounded time", () => {
    assert.ok(tookMs < 30_000, `${tookMs} ms`);
  });
});

test("a look without time ends as a finding, not as a hang or an error", async () => {
  const earlier = leftovers();
  const facts = await probeHost({ dataDir: "/", limitMs: 1 });
  for (const name of ["user namespaces", "btrfs quotas"]) {
    assert.equal(facts.find((fact) => fact.name === name)?.state, "missing", name);
  }
  assert.deepEqual(leftovers(), earlier);
});

test("a program that is nowhere is missing, with its package", () => {
  const skopeo = toolLooks(join(tmpdir(), "nowhere")).find(({ name }) => name === "skopeo");
  assert.deepEqual(skopeo?.look(), { state: "missing", detail: "not found" });
  assert.match(skopeo?.how ?? "", /apt-get install skopeo/);
});

test("the trial image passes fsck.erofs", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-erofs-"));
  try {
    writeFileSync(join(dir, "image"), emptyErofs());
    execFileSync("fsck.erofs", [join(dir, "image")], { stdio: "pipe" });
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") t.skip("fsck.erofs is not installed");
    else throw error;
  } finally {
    rmSync(dir, { recursive: true });
  }
});

function attachedTo(loop: string): string {
  try {
    return readFileSync(`/sys/block/${loop}/loop/backing_file`, "utf8");
  } catch {
    return "";
  }
}
