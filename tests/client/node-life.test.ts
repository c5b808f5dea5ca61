import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { type Marks, remainingTraces } from "../support/marks.ts";
import { sweep } from "../support/sweep.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");

describe("a node and the commands that start and stop it", { timeout: 900_000 }, () => {
  let marks: Marks;
  beforeEach(() => {
    marks = { folder: mkdtempSync(join(tmpdir(), "dsec-life-")), edge: `t${randomBytes(6).toString("hex")}` };
  });
  afterEach(async () => {
    await dsec(["down"]);
    const { processes, cgroups, mounts, loopDevices } = await remainingTraces(marks);
    await sweep(marks);
    rmSync(marks.folder, { recursive: true, force: true });
    assert.deepEqual([processes, cgroups, mounts, loopDevices], [[], [], [], []]);
  });

  function start(words: readonly string[], env: Record<string, string> = {}): ChildProcess {
    const places = { DSEC_DATA_DIR: join(marks.folder, "data"), DSEC_RUN_DIR: join(marks.folder, "run") };
    const node = { DSEC_EDGE: marks.edge, DSEC_LISTEN: "127.0.0.1:0" };
    return spawn(process.execPath, [ENTRY, ...words], {
      env: { ...process.env, ...places, ...node, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  async function dsec(words: readonly string[], env: Record<string, string> = {}) {
    const child = start(words, env);
    const said = { stdout: "", stderr: "" };
    child.stdout?.on("data", (chunk) => {
      said.stdout += chunk;
    });
    child.stderr?.on("data", (chunk) => {
      said.stderr += chunk;
    });
    const [status] = (await once(child, "close")) as [number | null];
    return { status, ...said };
  }

  /** `up` in the foreground, once it answers. */
  async function up(): Promise<ChildProcess> {
    const child = start(["up"]);
    let said = "";
    for await (const chunk of child.stderr ?? []) {
      said += chunk;
      if (said.includes("answers at")) return child;
    }
    throw new Error(said);
  }

  const RUN = ["run", "--base", "host-busybox", "--", "echo", "hello"];

  test("run starts one in the background, once; down stops it and leaves nothing", async () => {
    const both = await Promise.all([dsec(RUN), dsec(RUN)]);
    for (const { status, stdout, stderr } of both) assert.deepEqual([status, stdout], [0, "hello\n"], stderr);
    assert.equal(both.filter(({ stderr }) => stderr.includes("starting a node")).length, 1);
    assert.equal(statSync(join(marks.folder, "data/token")).mode & 0o777, 0o600);
    const again = await dsec(RUN);
    assert.deepEqual([again.stdout, again.stderr], ["hello\n", ""]);
    assert.match((await dsec(["down"])).stderr, /has stopped/);
    assert.match((await dsec(["ls"])).stderr, /no node runs/);
  });

  test("Ctrl-C of up removes its sandboxes, mounts and cgroups", async () => {
    const node = await up();
    const ended = once(node, "exit");
    assert.equal((await dsec(["create", "--base", "host-busybox"])).status, 0);
    node.kill("SIGINT");
    assert.deepEqual(await ended, [0, null]);
  });

  test("down --keep leaves sandboxes and their commands to the next node", async () => {
    const id = (await dsec(["create", "--base", "host-busybox"])).stdout.trim();
    await dsec(["exec", "-d", "--shell", id, "echo before; sleep 1; echo after"]);
    assert.match((await dsec(["down", "--keep"])).stderr, /live on/);
    await up();
    assert.equal((await dsec(["logs", "-f", id])).stdout, "before\nafter\n");
    assert.equal((await dsec(["exec", id, "true"])).status, 0);
  });

  test("one that was killed does not stop the next, which adopts its sandboxes", async () => {
    const node = await up();
    const id = (await dsec(["create", "--base", "host-busybox"])).stdout.trim();
    const ended = once(node, "exit");
    node.kill("SIGKILL");
    await ended;
    assert.match((await dsec(["ls"])).stderr, /no node runs/);
    await up();
    assert.equal((await dsec(["exec", id, "echo", "alive"])).stdout, "alive\n");
  });

  test("a second one on the same data directory is refused and names the first", async () => {
    const node = await up();
    const second = await dsec(["up"], { DSEC_RUN_DIR: join(marks.folder, "run2") });
    assert.equal(second.status, 125);
    assert.match(second.stderr, new RegExp(`another node uses .*: process ${node.pid}\nhint: `));
    assert.equal((await dsec(["status"])).status, 0, "the first one is not disturbed");
  });

  test("a port in use is named, and nothing is left of the start", async () => {
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(0, "127.0.0.1", resolve));
    const address = holder.address();
    const listen = `127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
    for (const words of [["up"], RUN]) {
      const outcome = await dsec(words, { DSEC_LISTEN: listen });
      assert.equal(outcome.status, 125);
      assert.match(outcome.stderr, /port is in use\nhint: .*--listen \(DSEC_LISTEN\)/);
    }
    holder.close();
    assert.ok(readFileSync(join(marks.folder, "data/node.log"), "utf8").includes("port is in use"));
  });

  test("a removed token file is made again, and only the new token is in it", async () => {
    await up();
    const token = () => readFileSync(join(marks.folder, "data/token"), "utf8");
    const first = token();
    await dsec(["down"]);
    rmSync(join(marks.folder, "data/token"));
    await up();
    assert.notEqual(token(), first);
    assert.equal((await dsec(["status"])).status, 0);
  });
});
