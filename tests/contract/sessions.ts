import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox, Session } from "#sdk";
import type { TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";

/** Persistent shells: what is kept, what each line gets of its own, and every way in which a shell can end. */
export function sessionsContract(backend: ContractBackend): void {
  describe(`sessions in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node, { resources: { memoryMiB: 512, pids: 1024 } });
    });
    after(() => node[Symbol.asyncDispose]());

    /** stdout of a line that must succeed. */
    const out = async (session: Session, line: string) => {
      const result = await session.run(line);
      assert.deepEqual([result.status.code, result.stderrText], [0, ""], line);
      return result.stdoutText;
    };
    const processes = async () => (await sandbox.run("ps -o pid,args | grep -c '[s]leep 4321'")).stdoutText.trim();

    test("directory, variables, functions and exports stay from line to line, and `$?` too", async () => {
      await using session = await sandbox.session({ cwd: "/tmp", env: { GIVEN: "yes" } });
      assert.equal(await out(session, "pwd; echo $GIVEN"), "/tmp\nyes\n");
      await out(session, "cd /; x=1; f() { echo f$x; }; export y=2");
      assert.equal(await out(session, "f; pwd; sh -c 'echo $y'"), "f1\n/\n2\n");
      assert.equal((await session.run("(exit 9)")).status.code, 9);
      assert.equal(await out(session, "echo $?"), "9\n");
    });

    test("Output unbounded or merged: a line has its own stdout, stderr and status, and text is never a status", async () => {
      await using session = await sandbox.session();
      const result = await session.run("echo out; echo err >&2; echo '1 0' ; echo 'exit 0'; (exit 3)");
      assert.deepEqual([result.stdoutText, result.stderrText], ["out\n1 0\nexit 0\n", "err\n"]);
      assert.deepEqual([result.status.cause, result.status.code], ["exited", 3]);
    });

    test("here-documents, lines of many lines, quotes that do not close: the line's error, and the session goes on", async () => {
      await using session = await sandbox.session();
      assert.equal(await out(session, "cat <<E\na\n  b\nE\n"), "a\n  b\n");
      assert.equal(await out(session, "for i in 1 2\ndo\n  echo $i\ndone"), "1\n2\n");
      const wrong = await session.run('echo "unbalanced');
      assert.deepEqual([wrong.status.cause, wrong.status.code, wrong.stdoutText], ["exited", 2, ""]);
      assert.match(wrong.stderrText, /unexpected EOF/);
      assert.equal(await out(session, "echo on"), "on\n");
    });

    test("a command that reads stdin reads nothing, or what it is given", async () => {
      await using session = await sandbox.session();
      assert.equal(await out(session, "cat; echo over"), "over\n");
      const fed = await session.run("wc -c", { stdin: Buffer.alloc(1_000_000) });
      assert.equal(fed.stdoutText.trim(), "1000000");
    });

    const ends = [
      ["exit 7", { cause: "exited", code: 7, signal: undefined }],
      ["set -e; (exit 4); echo no", { cause: "exited", code: 4, signal: undefined }],
      ["exec sh -c 'exit 9'", { cause: "exited", code: 9, signal: undefined }],
      ["kill -9 $$", { cause: "signaled", code: undefined, signal: "SIGKILL" }],
    ] as const;
    for (const [line, expected] of ends) {
      test(`${line}: the line and the session end alike, and later lines are refused by name`, async () => {
        const session = await sandbox.session();
        const { status } = await session.run(line);
        const { cause, code, signal, sessionEnded } = status;
        assert.deepEqual({ cause, code, signal }, expected);
        assert.equal(sessionEnded, true);
        await assert.rejects(session.run("true"), { kind: "FailedPrecondition" });
        const own = (await ended(session)).status;
        assert.deepEqual([own?.cause, own?.code, own?.signal], [expected.cause, expected.code, expected.signal]);
        await session.remove();
      });
    }

    test("a background job outlives its line, its output belongs to its line, and a later line waits for it", async () => {
      await using session = await sandbox.session();
      const line = await session.start(
        "(read -t 1 x </dev/tty; sleep 0.3; echo late; exit 5) 2>/dev/null & echo first",
      );
      const view = await line.wait();
      assert.equal(view.stdout.seen, 6);
      assert.equal(await out(session, "wait $!; echo $?"), "5\n");
      const chunks: Uint8Array[] = [];
      for await (const bytes of line.stdout()) chunks.push(bytes);
      assert.equal(Buffer.concat(chunks).toString(), "first\nlate\n");
    });

    test("lines started together run in order; a session is listed, and its lines are commands of their own", async () => {
      await using session = await sandbox.session({ name: "ordered" });
      const lines = Array.from({ length: 20 }, () => session.start("n=$((n+1)); echo $n"));
      const outs = await Promise.all(lines.map(async (line) => (await (await line).result()).stdoutText));
      assert.deepEqual(
        outs.map(Number).toSorted((a, b) => a - b),
        Array.from({ length: 20 }, (_, at) => at + 1),
      );
      const listed = (await sandbox.sessions()).find(({ name }) => name === "ordered");
      assert.equal(listed?.status, undefined);
      assert.ok((listed?.pid ?? 0) > 1);
      assert.equal((await sandbox.command(listed?.id ?? "").info()).session, "ordered");
      const commands = (await sandbox.commands()).filter((command) => command.session === "ordered");
      assert.equal(commands.length, 20);
      assert.deepEqual(commands[0]?.argv, ["n=$((n+1)); echo $n"]);
    });

    test("Time limit not enforced: what a line started is killed, earlier jobs are spared, the session goes on", async () => {
      await using session = await sandbox.session();
      await out(session, "keep=1; sleep 600 & old=$!");
      const { status, stdoutText } = await session.run("echo before; sleep 600; echo not", { timeLimitMs: 2_000 });
      assert.deepEqual([status.cause, status.sessionEnded, stdoutText], ["timeout", undefined, "before\n"]);
      assert.equal(await out(session, "kill -0 $old && echo $keep"), "1\n");
    });

    test("SIGINT gives a line up and leaves the session", async () => {
      await using session = await sandbox.session();
      // What hears it is in front by then: the shell itself is spared.
      const line = await session.start("sh -c 'echo ready; exec sleep 600'; echo not");
      for await (const _ of line.stdout()) break;
      await line.signal("SIGINT");
      const result = await line.result();
      assert.deepEqual([result.status.code, result.stdoutText], [130, "ready\n"]);
      assert.equal(await out(session, "echo on"), "on\n");
    });

    test("ending a session kills its whole tree, setsid and double forks included", async () => {
      const session = await sandbox.session({ name: "tree" });
      await out(session, "sleep 4321 & setsid sleep 4321 & (setsid sh -c 'sleep 4321 & exit' &) ; sleep 0.3; true");
      assert.equal(await processes(), "3");
      await session.remove();
      assert.equal(await processes(), "0");
      await session.remove();
      await assert.rejects(session.info(), { kind: "NotFound" });
    });

    test("a name belongs to one live session, and can be used again", async () => {
      const first = await sandbox.session({ name: "once" });
      await assert.rejects(sandbox.session({ name: "once" }), { kind: "AlreadyExists" });
      await first.run("exit");
      await ended(first);
      const second = await sandbox.session({ name: "once" });
      assert.equal(await out(second, "echo new"), "new\n");
      await second.remove();
    });

    test("a user's session runs as the user, who cannot read what another's holds", async () => {
      await using session = await sandbox.session({ user: "65534", env: { SECRET: "mine" } });
      assert.equal(await out(session, "id -u; echo $HOME"), "65534\n/\n");
      await using root = await sandbox.session({ env: { SECRET: "roots" } });
      const pid = (await root.info()).pid;
      const peek = await session.run(`cat /proc/${pid}/environ`);
      assert.notEqual(peek.status.code, 0);
    });

    test("no path of the sandbox leads to the shell, and none of its files is used to start it", async () => {
      await using session = await sandbox.session({ env: { BASH_ENV: "/tmp/hook" } });
      await sandbox.files.write("/tmp/hook", "echo hooked\n");
      await using hooked = await sandbox.session({ env: { BASH_ENV: "/tmp/hook" } });
      assert.equal(await out(hooked, "echo clean"), "clean\n");
      assert.equal(await out(session, "type -p bash; ls /proc/self/fd | wc -l | tr -d ' '"), "4\n");
    });

    test("All sandboxes lost when a daemon restarts: sessions and what they run survive kill -9 of the node", async () => {
      const session = await sandbox.session({ name: "survivor" });
      await session.run("v=kept; cd /tmp");
      const line = await session.start("sleep 1; echo done; (exit 6)");
      await node.kill();
      await node.start();
      sandbox = node.client.sandboxes.use(sandbox.id);
      const again = sandbox.openedSession("survivor");
      const result = await sandbox.command(line.id).result();
      assert.deepEqual([result.status.code, result.stdoutText], [6, "done\n"]);
      assert.equal(await out(again, "echo $v $PWD"), "kept /tmp\n");
      await again.remove();
    });

    test("a hundred sessions at once, each with its own variables", async () => {
      const sessions = await Promise.all(Array.from({ length: 100 }, () => sandbox.session()));
      const outs = await Promise.all(
        sessions.map(async (session, at) => {
          await session.run(`x=${at}`);
          return out(session, "echo $x");
        }),
      );
      assert.deepEqual(
        outs,
        sessions.map((_, at) => `${at}\n`),
      );
      await Promise.all(sessions.map((session) => session.remove()));
    });

    test("what no session or line can be is refused in a typed error, and nothing is left", async () => {
      const wrong = [{ name: "no/name" }, { name: "" }, { name: "x".repeat(65) }, { cwd: "relative" }];
      for (const options of wrong) await assert.rejects(sandbox.session(options), { kind: "InvalidArgument" });
      await assert.rejects(sandbox.session({ user: "nobody-here" }), { kind: "InvalidArgument" });
      await assert.rejects(sandbox.openedSession("none").run("true"), { kind: "NotFound" });
      await using session = await sandbox.session();
      await assert.rejects(session.run("a\0b"), { kind: "InvalidArgument" });
      await assert.rejects(session.run("x".repeat(1024 * 1024 + 1)), { kind: "InvalidArgument" });
      assert.equal(
        await out(session, `echo ${"x".repeat(1024 * 1024 - 100)} | wc -c | tr -d ' '`),
        `${1024 * 1024 - 99}\n`,
      );
      assert.equal((await session.run(Buffer.from("printf '%s' '\xff'", "latin1"))).stdout[0], 0xff);
    });
  });
}

/** The session once its end is recorded: it follows the end of the line that brought it. */
async function ended(session: Session) {
  for (;;) {
    const view = await session.info();
    if (view.status !== undefined) return view;
  }
}
