import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startNode, type TestNode } from "../support/node.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");
const BASE = ["--base", "host-busybox"];

interface Outcome {
  readonly status: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

describe("the command line against a real node", { timeout: 900_000 }, () => {
  let node: TestNode;
  let folder = "";
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "dsec-cli-"));
    node = await startNode();
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    await node?.[Symbol.asyncDispose]();
  });

  function start(words: readonly string[], env: Record<string, string> = {}): ChildProcess {
    return spawn(process.execPath, [ENTRY, ...words], { env: { ...process.env, ...node.env, ...env }, cwd: folder });
  }

  async function outcomeOf(child: ChildProcess): Promise<Outcome> {
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout?.on("data", (chunk) => stdout.push(chunk));
    child.stderr?.on("data", (chunk) => stderr.push(chunk));
    const [status] = (await once(child, "close")) as [number | null];
    return { status, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr).toString() };
  }

  async function dsec(words: readonly string[], input: string | Buffer = "", env: Record<string, string> = {}) {
    const child = start(words, env);
    // A program that ends without reading its input breaks this pipe.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input);
    return outcomeOf(child);
  }

  async function sandboxes(): Promise<string[]> {
    return (await Array.fromAsync(node.client.sandboxes.list())).map((view) => view.id);
  }

  /** Resolves when the child has said the word; its output flows on, since a closed one would end it. */
  function said(child: ChildProcess, word: string): Promise<void> {
    return new Promise((resolve, reject) => {
      let text = "";
      child.stdout?.on("data", (chunk) => {
        text += chunk;
        if (text.includes(word)) resolve();
      });
      child.stdout?.on("end", () => reject(new Error(`ended after saying ${JSON.stringify(text)}`)));
    });
  }

  test("run builds a default base on its first use, then runs with stdin, stdout, stderr and status", async () => {
    const first = await dsec(["run", ...BASE, "--shell", "--", "cat; echo err >&2; exit 7"], "in\0put");
    assert.deepEqual([first.status, first.stdout.toString()], [7, "in\0put"]);
    assert.match(first.stderr, /building the base host-busybox[\s\S]*err\n$/);
    const second = await dsec(["run", ...BASE, "echo", "-n", "two words", "--json"]);
    assert.deepEqual([second.status, second.stdout.toString(), second.stderr], [0, "two words --json", ""]);
    assert.deepEqual(await sandboxes(), [], "run leaves no sandbox behind");
  });

  test("megabytes go in and out unchanged", async () => {
    const input = randomBytes(8_000_000);
    const outcome = await dsec(["run", ...BASE, "cat"], input);
    assert.equal(outcome.status, 0, outcome.stderr);
    assert.ok(input.equals(outcome.stdout));
  });

  test("the exit status is a shell's: 127, 126, 128 and the signal, 125 for the platform", async () => {
    const statuses: [readonly string[], number, RegExp][] = [
      [["run", ...BASE, "no-such-program"], 127, /no-such-program/],
      [["run", ...BASE, "/etc/passwd"], 126, /\/etc\/passwd/],
      [["run", ...BASE, "--shell", "kill -9 $$"], 137, /^$/],
      [["run", ...BASE, "--time-limit", "200ms", "sleep", "60"], 137, /time limit/],
      [["run", "--base", "nope", "true"], 125, /^dsec: .*nope.*\n/],
      [["run", ...BASE, "--memory", "0", "true"], 125, /--memory/],
      [["run", ...BASE, "--workspace", "./missing", "true"], 125, /missing/],
      [["exec", "slocal-aaaaaaaaaaaaaaaa", "true"], 125, /^dsec: .*\n/],
      [["exec", "slocal-aaaaaaaaaaaaaaaa", "--detach", "--", "true"], 125, /--detach .*\nhint: .* ID --/],
    ];
    for (const [words, status, stderr] of statuses) {
      const outcome = await dsec(words);
      assert.equal(outcome.status, status, `${words.join(" ")}: ${outcome.stderr}`);
      assert.match(outcome.stderr, stderr);
      assert.ok(outcome.stderr.split("\n").length <= 3, `one line and a hint: ${outcome.stderr}`);
    }
    assert.deepEqual(await sandboxes(), []);
  });

  test("a wrong token is refused with a hint", async () => {
    const outcome = await dsec(["ls"], "", { DSEC_TOKEN: "dsec_wrong" });
    assert.equal(outcome.status, 125);
    assert.match(outcome.stderr, /^dsec: .*token.*\nhint: /);
  });

  test("Ctrl-C goes to the command; a second one removes the sandbox and leaves", async () => {
    const polite = start([
      "run",
      ...BASE,
      "--shell",
      'trap "echo bye; exit 9" INT; echo ready; while :; do sleep 0.1; done',
    ]);
    const politeEnd = once(polite, "exit");
    await said(polite, "ready");
    polite.kill("SIGINT");
    assert.deepEqual(await politeEnd, [9, null]);
    const stubborn = start([
      "run",
      ...BASE,
      "--shell",
      'trap "echo again" INT; echo ready; while :; do sleep 0.1; done',
    ]);
    const stubbornEnd = once(stubborn, "exit");
    await said(stubborn, "ready");
    stubborn.kill("SIGINT");
    await said(stubborn, "again");
    stubborn.kill("SIGINT");
    assert.deepEqual(await stubbornEnd, [130, null]);
    assert.deepEqual(await sandboxes(), []);
  });

  test("SIGTERM removes the sandbox and leaves", async () => {
    const child = start(["run", ...BASE, "--shell", "echo ready; sleep 60"]);
    const end = once(child, "exit");
    await said(child, "ready");
    child.kill("SIGTERM");
    assert.deepEqual(await end, [143, null]);
    assert.deepEqual(await sandboxes(), []);
  });

  test("a reader that goes away ends the command as in a pipe, and the sandbox goes too", async () => {
    const child = start(["run", ...BASE, "yes"]);
    const end = once(child, "exit");
    child.stdout?.once("data", () => child.stdout?.destroy());
    assert.deepEqual(await end, [141, null]);
    assert.deepEqual(await sandboxes(), []);
  });

  test("a background child that holds the output is not waited for", async () => {
    const outcome = await dsec(["run", ...BASE, "--shell", "sleep 60 & echo done"]);
    assert.deepEqual([outcome.status, outcome.stdout.toString()], [0, "done\n"]);
  });

  test("create, exec, logs, info, ls and rm work on one sandbox", async () => {
    const id = (await dsec(["create", ...BASE, "--label", "a=b", "-e", "X=1"])).stdout.toString().trim();
    const exec = await dsec(["exec", "-e", "Y=2", id, "--", "sh", "-c", "echo $X$Y; echo e >&2"]);
    assert.deepEqual([exec.stdout.toString(), exec.stderr], ["12\n", "e\n"]);
    const detached = (await dsec(["exec", "-d", "--shell", id, "echo early; sleep 0.2; echo late"])).stdout
      .toString()
      .trim();
    assert.equal((await dsec(["logs", "-f", id, detached])).stdout.toString(), "early\nlate\n");
    assert.equal((await dsec(["logs", id])).stdout.toString(), "early\nlate\n");
    const info = JSON.parse((await dsec(["info", id])).stdout.toString());
    assert.deepEqual([info.id, info.env.X, info.commands.length], [id, "1", 2]);
    assert.match((await dsec(["ls", "--label", "a=b"])).stdout.toString(), new RegExp(`${id} +ready`));
    assert.equal(JSON.parse((await dsec(["ls", "--json"])).stdout.toString()).id, id);
    assert.equal((await dsec(["rm", id])).status, 0);
    assert.deepEqual(await sandboxes(), []);
  });

  test("extend moves the time limits of a sandbox, each for itself, and lifts them", async () => {
    const id = (await dsec(["create", ...BASE, "--idle-timeout", "15m"])).stdout.toString().trim();
    const said = (...words: string[]) => dsec(["extend", id, ...words]).then(({ stdout }) => stdout.toString());
    assert.equal(await said("--max-lifetime", "2h"), "idle timeout 15m, maximum lifetime 2h\n");
    assert.equal(await said("--idle-timeout", "none"), "idle timeout none, maximum lifetime 2h\n");
    assert.deepEqual(JSON.parse(await said("--idle-timeout", "1d", "--json")), {
      id,
      idleTimeoutMs: 86_400_000,
      maxLifetimeMs: 7_200_000,
    });
    const { idleTimeoutMs, maxLifetimeMs } = await node.client.sandboxes.use(id).info();
    assert.deepEqual([idleTimeoutMs, maxLifetimeMs], [86_400_000, 7_200_000]);
    const nothing = await dsec(["extend", id]);
    assert.deepEqual([nothing.status, /no limit is named\nhint: /.test(nothing.stderr)], [125, true]);
    await dsec(["rm", id]);
  });

  test("pause and resume take several sandboxes, each on its own, and say why one cannot be paused", async () => {
    const id = (await dsec(["create", ...BASE])).stdout.toString().trim();
    const paused = await dsec(["pause", id]);
    assert.deepEqual([paused.status, paused.stdout.toString()], [125, ""]);
    assert.match(paused.stderr, new RegExp(`${id}: sandboxes of the container backend cannot be paused`));
    const resumed = await dsec(["resume", "no-such", id]);
    assert.deepEqual([resumed.status, resumed.stdout.toString()], [125, `${id}\n`]);
    assert.match(resumed.stderr, /no-such: /);
    assert.equal(JSON.parse((await dsec(["resume", "--json", id])).stdout.toString()).state, "ready");
    await dsec(["rm", id]);
  });

  test("rm of an id that nobody knows is a failure, unless it was meant", async () => {
    const id = (await dsec(["create", ...BASE])).stdout.toString().trim();
    const mistyped = `${id.slice(0, -1)}${id.endsWith("x") ? "y" : "x"}`;
    const outcome = await dsec(["rm", mistyped, id]);
    assert.deepEqual([outcome.status, outcome.stdout.toString()], [125, `${id}\n`]);
    assert.match(outcome.stderr, new RegExp(`^dsec: ${mistyped}: no sandbox`));
    assert.deepEqual(await sandboxes(), []);
    assert.equal((await dsec(["rm", "--force", id])).status, 0);
  });

  test("every command explains itself, and a word too few or too many leads to the explanation", async () => {
    for (const [words, usage] of [
      [["exec"], /^Usage: dsec exec \[options\]/],
      [["up"], /^Usage: dsec up \[SETTINGS\]\n\n +--data-dir/],
      [["down"], /^Usage: dsec down \[--keep\]/],
      [["doctor"], /^Usage: dsec doctor/],
      [["bench"], /^Usage: dsec bench NAME/],
      [["test"], /^Usage: dsec test/],
    ] as const) {
      const help = await dsec([...words, "--help"]);
      assert.deepEqual([help.status, help.stderr], [0, ""], words.join());
      assert.match(help.stdout.toString(), usage);
    }
    const hints: readonly (readonly [readonly string[], string])[] = [
      [["exec"], "dsec exec --help"],
      [["session", "run", "x"], "dsec session run --help"],
      [["--json", "logs"], "dsec logs --help"],
      [["log"], "dsec --help"],
      [["exec", "-i", "x", "--", "cat"], "add --tty, or leave out --interactive"],
    ];
    for (const [words, hint] of hints) {
      const { status, stderr } = await dsec(words);
      assert.equal(status, 125, words.join());
      assert.match(stderr, /^dsec: [^\n\\]+\nhint: [^\n]+\n$/);
      assert.ok(stderr.endsWith(`hint: ${hint}\n`), stderr);
    }
  });

  test("commands, signal and wait work on what was started before", async () => {
    const id = (await dsec(["create", ...BASE])).stdout.toString().trim();
    const command = (await dsec(["exec", "-d", id, "--", "sleep", "600"])).stdout.toString().trim();
    assert.match((await dsec(["commands", id])).stdout.toString(), new RegExp(`${command} +\\d+ +running .*sleep 600`));
    assert.equal(JSON.parse((await dsec(["commands", "--json", id])).stdout.toString()).id, command);
    assert.equal((await dsec(["signal", id, command, "SIGNOTHING"])).status, 125);
    assert.equal((await dsec(["signal", id, command, "9"])).status, 0);
    assert.equal((await dsec(["wait", id, command])).status, 137);
    const ended = JSON.parse((await dsec(["--json", "wait", id, command])).stdout.toString());
    assert.equal(ended.status.signal, "SIGKILL");
    await dsec(["rm", id]);
  });

  test("with --pipes a background child that holds the output is waited for", async () => {
    const outcome = await dsec(["run", "--pipes", ...BASE, "--shell", "(sleep 0.3; echo late) & echo early"]);
    assert.deepEqual([outcome.status, outcome.stdout.toString()], [0, "early\nlate\n"]);
  });

  test("--json counts before a command of this machine, or is refused where there is no JSON", async () => {
    const facts = JSON.parse((await dsec(["--json", "doctor"])).stdout.toString());
    assert.ok(Array.isArray(facts) && facts.length > 3);
    const refused = await dsec(["--json", "bench", "create"]);
    assert.deepEqual([refused.status, refused.stdout.toString()], [125, ""]);
    assert.match(refused.stderr, /^dsec: bench has no results as JSON/);
    const places = { DSEC_DATA_DIR: join(folder, "data"), DSEC_RUN_DIR: join(folder, "run") };
    const down = await dsec(["--json", "down"], "", places);
    assert.deepEqual(JSON.parse(down.stdout.toString()), { stopped: false, sandboxesKept: false });
  });

  test("cp moves trees both ways, between sandboxes, and as tar through a pipe", async () => {
    const id = (await dsec(["create", ...BASE])).stdout.toString().trim();
    mkdirSync(join(folder, "tree/sub"), { recursive: true });
    writeFileSync(join(folder, "tree/sub/f"), "deep", { mode: 0o755 });
    symlinkSync("sub/f", join(folder, "tree/link"));
    assert.equal((await dsec(["cp", "tree", `${id}:/tmp/up`])).status, 0);
    assert.equal((await dsec(["cp", `${id}:/tmp/up`, "down"])).status, 0);
    assert.equal(readFileSync(join(folder, "down/link"), "utf8"), "deep");
    assert.equal(readlinkSync(join(folder, "down/link")), "sub/f");
    assert.equal(statSync(join(folder, "down/sub/f")).mode & 0o777, 0o755);
    const again = await dsec(["cp", `${id}:/tmp/up/.`, "down"]);
    assert.deepEqual([again.status, /there already/.test(again.stderr)], [125, true]);
    const tar = await dsec(["cp", `${id}:/tmp/up`, "-"]);
    assert.equal((await dsec(["cp", "--tar", "-", `${id}:/tmp/piped`], tar.stdout)).status, 0);
    const other = (await dsec(["create", ...BASE])).stdout.toString().trim();
    assert.equal((await dsec(["cp", `${id}:/tmp/piped`, `${other}:/tmp/across`])).status, 0);
    assert.equal((await dsec(["exec", other, "--", "cat", "/tmp/across/link"])).stdout.toString(), "deep");
    await dsec(["rm", id, other]);
  });

  test("cp moves a file both ways with its mode, and leaves nothing half done", async () => {
    const id = (await dsec(["create", ...BASE])).stdout.toString().trim();
    const content = randomBytes(100_000);
    writeFileSync(join(folder, "in"), content, { mode: 0o750 });
    assert.equal((await dsec(["cp", "in", `${id}:/tmp/sub/`])).status, 0);
    assert.equal((await dsec(["cp", `${id}:/tmp/sub/in`, "out"])).status, 0);
    assert.ok(readFileSync(join(folder, "out")).equals(content));
    assert.equal(statSync(join(folder, "out")).mode & 0o777, 0o750);
    assert.equal((await dsec(["cp", "-", `${id}:/tmp/piped`], "from stdin")).status, 0);
    assert.equal((await dsec(["cp", `${id}:/tmp/piped`, "-"])).stdout.toString(), "from stdin");
    const missing = await dsec(["cp", `${id}:/tmp/none`, "none"]);
    assert.deepEqual([missing.status, statSync(join(folder, "none"), { throwIfNoEntry: false })], [125, undefined]);
    assert.match((await dsec(["cp", "in", "out"])).stderr, /no side is in a sandbox/);
    await dsec(["rm", "--all"]);
  });

  test("a directory becomes the workspace, links and modes included", async () => {
    mkdirSync(join(folder, "work/deep"), { recursive: true });
    writeFileSync(join(folder, "work/deep/tool"), "#!/bin/sh\necho from the workspace\n", { mode: 0o755 });
    const outcome = await dsec(["run", ...BASE, "--workspace", "./work", "/deep/tool"]);
    assert.deepEqual([outcome.status, outcome.stdout.toString(), outcome.stderr], [0, "from the workspace\n", ""]);
    const again = await dsec(["run", ...BASE, "--workspace", "./work", "/deep/tool"]);
    assert.equal(again.status, 0);
    const workspaces = (await node.client.artifacts.list()).filter((artifact) => artifact.kind === "workspace");
    assert.equal(workspaces.length, 1);
    const placed = await dsec([
      "run",
      ...BASE,
      "--workspace",
      "./work",
      "--workspace-at",
      "/srv/repo",
      "/srv/repo/deep/tool",
    ]);
    assert.deepEqual([placed.status, placed.stdout.toString()], [0, "from the workspace\n"], placed.stderr);
    assert.equal(
      (await dsec(["image", "import", "./work", "moved", "--kind", "workspace", "--at", "/opt/a b"])).status,
      0,
    );
    const moved = await dsec(["run", ...BASE, "--workspace", "moved", "/opt/a b/deep/tool"]);
    assert.equal(moved.stdout.toString(), "from the workspace\n");
    const misplaced = await dsec(["run", ...BASE, "--workspace", "moved", "--workspace-at", "/x", "true"]);
    assert.deepEqual([misplaced.status, /goes with a directory/.test(misplaced.stderr)], [125, true]);
  });

  test("images are imported, listed, shown and removed", async () => {
    mkdirSync(join(folder, "tools"), { recursive: true });
    writeFileSync(join(folder, "tools/hello"), "#!/bin/sh\necho hello\n", { mode: 0o755 });
    assert.equal(
      (await dsec(["image", "import", "tools", "kit:v1", "--kind", "toolkit"])).stdout.toString(),
      "kit:v1\n",
    );
    assert.match((await dsec(["image", "ls"])).stdout.toString(), /kit:v1 +toolkit/);
    assert.equal(JSON.parse((await dsec(["image", "info", "kit:v1"])).stdout.toString()).kind, "toolkit");
    const layers = JSON.parse((await dsec(["--json", "image", "layers", "kit:v1"])).stdout.toString());
    assert.deepEqual(
      layers.map(({ state }: { state: string }) => state),
      ["complete"],
    );
    assert.match(
      (await dsec(["image", "layers", "kit:v1"])).stdout.toString(),
      /^LAYER +STATE.*\nsha256:\w{12} +complete/,
    );
    assert.equal((await dsec(["run", ...BASE, "--toolkit", "kit:v1", "/hello"])).stdout.toString(), "hello\n");
    assert.equal((await dsec(["image", "rm", "kit:v1"])).status, 0);
    assert.equal((await dsec(["image", "info", "kit:v1"])).status, 125);
  });

  test("run as JSON tells status and output apart from failures", async () => {
    const outcome = await dsec(["run", ...BASE, "--json", "--", "printf", "\\377"]);
    const document = JSON.parse(outcome.stdout.toString());
    assert.deepEqual([document.status.code, document.stdoutBase64, document.stderr], [0, "/w==", ""]);
  });

  test("status counts what exists against what should", async () => {
    assert.match(
      (await dsec(["status"])).stdout.toString(),
      /^node \w+: \d+ sandboxes\nCLASS +EXPECTED +FOUND +SURPLUS\n/,
    );
    const [{ resources }] = JSON.parse((await dsec(["status", "--json"])).stdout.toString());
    assert.ok(resources.every((count: { expected: number; found: number }) => count.expected === count.found));
    assert.ok(resources.some((count: { class: string }) => count.class === "cgroups"));
  });
});
