import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { create, startNodeWithBase } from "../support/sandbox.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");
const DRIVER = join(import.meta.dirname, "testdata/on-terminal.py");
const LIMIT_MS = 60_000;

type Step =
  | { readonly expect: string }
  | { readonly send: string }
  | { readonly size: readonly [number, number] }
  | { readonly kill: NodeJS.Signals };

interface Seen {
  readonly shown: string;
  readonly status: number;
  /** Whether the terminal was left as it had been. */
  readonly restored: boolean;
}

describe("the command line on a terminal", { timeout: 900_000 }, () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
  });
  after(() => node[Symbol.asyncDispose]());

  async function onTerminal(words: readonly string[], steps: readonly Step[]): Promise<Seen> {
    const child = spawn("python3", [DRIVER, JSON.stringify(steps), process.execPath, ENTRY, ...words], {
      env: { ...process.env, ...node.env, TERM: "vt220" },
      timeout: LIMIT_MS,
      stdio: ["ignore", "pipe", "inherit"],
    });
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
    });
    await once(child, "close");
    return JSON.parse(text) as Seen;
  }

  test("exec -it: size, TERM, keys, Ctrl-C to the program and not to us, its exit status, and the terminal as it was", async () => {
    const seen = await onTerminal(
      ["exec", "-it", sandbox.id, "--", "/bin/sh"],
      [
        { expect: "# " },
        { send: "stty size; echo $TERM; sleep 600\n" },
        { expect: "vt220" },
        { send: "\x03" },
        { expect: "# " },
        { send: "echo got-$((6*7)); exit 5\n" },
      ],
    );
    assert.match(seen.shown, /24 80.*vt220.*got-42/s);
    assert.deepEqual([seen.status, seen.restored], [5, true], seen.shown);
  });

  test("exec -it on a terminal that nobody gave a size takes the usual one", async () => {
    const seen = await onTerminal(["exec", "-it", sandbox.id, "--", "/bin/sh", "-c", "stty size"], [{ size: [0, 0] }]);
    assert.match(seen.shown, /24 80/);
    assert.equal(seen.status, 0, seen.shown);
  });

  test("top draws its table again and again until Ctrl-C, and leaves the terminal as it was", async () => {
    const seen = await onTerminal(
      ["top", "--interval", "100ms"],
      [{ expect: sandbox.id }, { expect: "\x1b[H" }, { expect: sandbox.id }, { send: "\x03" }],
    );
    assert.ok(seen.shown.includes("\x1b[H\x1b[JID "), seen.shown);
    assert.deepEqual([seen.status, seen.restored], [0, true], seen.shown);
  });

  test("create --count counts on stderr what is done, over and over on one line", async () => {
    const words = ["create", "--base", "host-busybox", "--memory", "16MiB", "--label", "set=term", "--count", "3"];
    const seen = await onTerminal(words, []);
    for (const done of [1, 2, 3]) assert.ok(seen.shown.includes(`\rdsec: ${done} of 3\x1b[K`), seen.shown);
    assert.equal(seen.status, 0, seen.shown);
    assert.equal((await dsec(node, ["rm", "--label", "set=term"])).status, 0);
  });

  test("a new size of the local terminal reaches the program", async () => {
    const script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done";
    const seen = await onTerminal(
      ["exec", "-it", "--shell", sandbox.id, "--", script],
      [{ expect: "ready" }, { size: [50, 132] }, { expect: "50 132" }],
    );
    assert.deepEqual([seen.status, seen.restored], [0, true], seen.shown);
  });

  test("the detach keys leave it running, attach brings it back with what it has shown", async () => {
    const left = await onTerminal(
      ["exec", "-it", sandbox.id, "--", "/bin/sh"],
      [{ expect: "# " }, { send: "echo marker-$((40+2))\n" }, { expect: "marker-42" }, { send: "\x10\x11" }],
    );
    assert.deepEqual([left.status, left.restored], [0, true], left.shown);
    const id = /detached from (\S+),/.exec(left.shown)?.[1] ?? "";
    const back = await onTerminal(["attach", sandbox.id, id], [{ expect: "marker-42" }, { send: "exit 9\n" }]);
    assert.deepEqual([back.status, back.restored], [9, true], back.shown);
  });

  test("whoever ends dsec finds the terminal as it was; the program is hung up", async () => {
    const seen = await onTerminal(
      ["exec", "-it", "--shell", sandbox.id, "--", "echo ready; exec sleep 700"],
      [{ expect: "ready" }, { kill: "SIGTERM" }],
    );
    assert.deepEqual([seen.status, seen.restored], [143, true], seen.shown);
    const last = (await sandbox.commands({ newestFirst: true, limit: 1 }))[0];
    const { status } = await sandbox.command(last?.id ?? "").wait();
    assert.deepEqual([status.cause, status.signal], ["signaled", "SIGHUP"]);
  });

  test("a program that does not exist, and a call without a terminal, end as they should and change nothing", async () => {
    const seen = await onTerminal(["exec", "-it", sandbox.id, "--", "/no/program"], []);
    assert.deepEqual([seen.status, seen.restored], [127, true], seen.shown);
    const piped = await dsec(node, ["exec", "-it", sandbox.id, "--", "true"]);
    assert.equal(piped.status, 125);
    assert.match(piped.stderr, /no terminal.*leave out --tty/s);
    const lone = await dsec(node, ["exec", "-i", sandbox.id, "--", "true"]);
    assert.match(lone.stderr, /--interactive means nothing without --tty/);
    const shown = await dsec(node, ["exec", "-t", sandbox.id, "--", "tty"]);
    assert.deepEqual([shown.status, shown.stdout], [0, "/dev/pts/0\r\n"]);
  });

  test("session run opens a session, keeps it, and has the line's streams and status", async () => {
    const line = (...words: string[]) => dsec(node, ["session", "run", sandbox.id, "build", "--", ...words]);
    assert.equal((await line("cd /tmp; x=5")).status, 0);
    const second = await line("echo $PWD $x; echo err >&2; (exit 6)");
    assert.deepEqual([second.status, second.stdout, second.stderr], [6, "/tmp 5\n", "err\n"]);
    assert.equal((await dsec(node, ["session", "run", sandbox.id, "build", "--", "cat"], "fed")).stdout, "fed");
    assert.match((await dsec(node, ["session", "ls", sandbox.id])).stdout, /build\s+\d+\s+\S+\s+lives/);
    const last = await line("exit 3");
    assert.deepEqual([last.status, last.stderr], [3, "dsec: the session build has ended\n"]);
    assert.equal((await line("echo new$x")).stdout, "new\n");
    assert.equal((await dsec(node, ["session", "rm", sandbox.id, "build"])).status, 0);
    assert.deepEqual(JSON.parse((await dsec(node, ["--json", "session", "ls", sandbox.id])).stdout), []);
  });

  test("logs --since-offset leaves out what came before", async () => {
    const command = await sandbox.start("printf 0123456789; printf abcdef >&2");
    await command.wait();
    const { stdout, stderr } = await dsec(node, ["logs", "-f", "--since-offset", "4", sandbox.id, command.id]);
    assert.deepEqual([stdout, stderr], ["456789", "ef"]);
  });
});
