import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { BASE, create, startNodeWithBase } from "../support/sandbox.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");
const MEGABYTE = 1_000_000;

describe("dsec as a part of a pipe", { timeout: 900_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  const sandboxes = async () => (await Array.fromAsync(node.client.sandboxes.list())).map((view) => view.id);

  /** A line of the host's shell, in which `dsec` is the command. */
  function shell(line: string): ChildProcess {
    const script = `dsec() { "${process.execPath}" "${ENTRY}" "$@"; }; run() { dsec run --base ${BASE} "$@"; }; ${line}`;
    return spawn("bash", ["-c", script], { env: { ...process.env, ...node.env }, stdio: ["pipe", "pipe", "pipe"] });
  }

  async function outcome(child: ChildProcess): Promise<{ status: number | null; stdout: Buffer; stderr: string }> {
    const said = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    child.stdout?.on("data", (chunk: Buffer) => said.stdout.push(chunk));
    child.stderr?.on("data", (chunk: Buffer) => said.stderr.push(chunk));
    const [status] = (await once(child, "close")) as [number | null];
    return { status, stdout: Buffer.concat(said.stdout), stderr: Buffer.concat(said.stderr).toString() };
  }

  test("passes 300 MB on, byte for byte", async () => {
    const { status, stdout, stderr } = await outcome(shell("run --shell 'yes | head -c 300000000' | sha256sum"));
    const expected = createHash("sha256");
    for (let at = 0; at < 300; at++) expected.update("y\n".repeat(MEGABYTE / 2));
    assert.deepEqual([status, stderr, stdout.toString().split(" ")[0]], [0, "", expected.digest("hex")]);
  });

  test("feeds 100 MB of any bytes", async () => {
    const child = shell("run sha256sum");
    const done = outcome(child);
    const expected = createHash("sha256");
    for (let at = 0; at < 100; at++) {
      const bytes = randomBytes(MEGABYTE);
      expected.update(bytes);
      if (child.stdin?.write(bytes) === false) await once(child.stdin, "drain");
    }
    child.stdin?.end();
    assert.equal((await done).stdout.toString().split(" ")[0], expected.digest("hex"));
  });

  test("holds the command back for a slow reader, and loses nothing", async () => {
    const child = shell("run --shell 'head -c 40000000 /dev/zero; echo all-written >&2'");
    let written = false;
    child.stderr?.on("data", () => {
      written = true;
    });
    await once(child.stdout ?? child, "readable");
    // What is between the two ends is bounded: the command cannot have finished while nobody reads.
    assert.equal(written, false);
    assert.equal((await outcome(child)).stdout.length, 40 * MEGABYTE);
    assert.equal(written, true);
  });

  test("prints whole documents, whoever reads how slowly", async () => {
    const { stdout } = await outcome(
      shell("run --json --shell 'head -c 5000000 /dev/zero | tr \"\\0\" a' | (sleep 1; cat)"),
    );
    assert.equal(JSON.parse(stdout.toString()).stdout.length, 5 * MEGABYTE);
  });

  test("fails in one line when its output has no room", async () => {
    for (const line of ["run echo x", "dsec ls", "run --json echo x"]) {
      const { status, stderr } = await outcome(shell(`${line} >/dev/full`));
      assert.equal(status, 125, line);
      assert.match(stderr, /^dsec: stdout cannot be written: ENOSPC.*\n$/);
    }
    assert.deepEqual(await sandboxes(), []);
  });

  test("minds no closed descriptor, and no input that nobody reads", async () => {
    assert.equal((await outcome(shell("run cat <&-"))).status, 0);
    assert.equal((await outcome(shell("run echo x >&-"))).status, 0);
    assert.equal((await outcome(shell("run none 2>&-"))).status, 127);
    assert.equal((await outcome(shell("head -c 50000000 /dev/zero | run true"))).status, 0);
  });

  test("takes words and names that are no UTF-8 as they are", async () => {
    const words = await outcome(shell("run printf %s $'a\\xff\\xfeb€'; run --shell $'printf %s \\xff'"));
    assert.deepEqual(words.stdout, Buffer.from("61fffe62e282acff", "hex"));
    await using sandbox = await create(node);
    const line = `cd ${node.marks.folder}; printf data >$'f\\xff'; dsec cp $'f\\xff' ${sandbox.id}:/tmp/; dsec cp ${sandbox.id}:$'/tmp/f\\xff' $'g\\xfe'; cat $'g\\xfe'`;
    assert.deepEqual(await outcome(shell(line)), { status: 0, stdout: Buffer.from("data"), stderr: "" });
    const [entry] = await sandbox.files.list("/tmp");
    assert.deepEqual(entry?.name, { base64: Buffer.from([0x66, 0xff]).toString("base64") });
    const refused = await outcome(shell("run -e $'X=\\xff' true"));
    assert.equal(refused.status, 125);
    assert.match(refused.stderr, /not valid Unicode/);
  });

  test("takes a megabyte of arguments, and refuses more than there may be", async () => {
    const many = await dsec(node, [
      "run",
      "--base",
      BASE,
      "sh",
      "-c",
      'printf %s "$@" | wc -c',
      "sh",
      ...Array(10).fill("x".repeat(104_858)),
    ]);
    assert.deepEqual([many.stdout, many.stderr], ["1048580\n", ""]);
    const tooMany = await dsec(node, ["run", "--base", BASE, "true", ...Array(150_000).fill("x")]);
    assert.equal(tooMany.status, 125);
    assert.match(tooMany.stderr, /^dsec: 150004 words are more than 100000\nhint: /);
  });

  test("that is killed leaves a sandbox which the node removes by itself", async () => {
    const log = openSync(join(node.marks.folder, "out"), "w");
    const child = spawn(process.execPath, [ENTRY, "run", "--base", BASE, "sleep", "600"], {
      env: { ...process.env, ...node.env },
      stdio: ["ignore", log, log],
    });
    closeSync(log);
    let ids = await sandboxes();
    while (ids.length === 0) ids = await sandboxes();
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    const [id = ""] = ids;
    assert.equal((await node.client.sandboxes.info(id)).idleTimeoutMs, 60_000);
    await node.client.sandboxes.remove(id);
  });

  test("says in one line what it did not understand", async () => {
    for (const [words, message, help] of [
      [[], /a command is missing/, "dsec --help"],
      [["image"], /a command is missing/, "dsec image --help"],
      [["nonsense"], /unknown command/, "dsec --help"],
      [["run", "--nonsense", "true"], /unknown option/, "dsec run --help"],
      [["run", "--memory"], /argument missing/, "dsec run --help"],
    ] as const) {
      const { status, stdout, stderr } = await dsec(node, words);
      assert.deepEqual([status, stdout], [125, ""]);
      assert.match(stderr, /^dsec: .*\nhint: .*\n$/);
      assert.ok(stderr.endsWith(`hint: ${help}\n`), stderr);
      assert.match(stderr, message);
    }
  });
});
