import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { GuestLink } from "#core/guest.ts";
import {
  type AgentBuild,
  EXEC_DEFAULTS,
  forEachBuild,
  nextNumber,
  Recorder,
  type RunOptions,
  run,
  TestAgent,
} from "./testing.ts";

const SHELL = "/bin/bash-static";

/** An agent with a shell for sessions. */
function start(build: AgentBuild): Promise<TestAgent> {
  return TestAgent.start({ build, shell: SHELL });
}

/** One open session and its lines. */
class Session {
  readonly number = nextNumber();
  readonly recorder: Recorder;
  readonly #link: GuestLink;

  private constructor(link: GuestLink) {
    this.#link = link;
    this.recorder = new Recorder((stream, offset) => link.acknowledge(this.number, stream, offset));
  }

  static async open(link: GuestLink, options: RunOptions = {}): Promise<Session> {
    const session = new Session(link);
    const env = { PATH: "/usr/bin:/bin", LANG: "C.UTF-8" };
    const action = { type: "session" } as const;
    await link.start(session.number, { ...EXEC_DEFAULTS, cwd: "/tmp", env, ...options, action }, session.recorder);
    return session;
  }

  async line(text: string | Uint8Array, options: RunOptions = {}) {
    const bytes = typeof text === "string" ? Buffer.from(text) : text;
    const result = await run(this.#link, { type: "line", session: this.number, text: bytes }, options);
    return {
      ...result,
      code: result.end.code,
      out: result.stdout.toString("latin1"),
      err: result.stderr.toString("latin1"),
    };
  }

  /** A line that is on its way. */
  async begin(text: string, onOutput: () => void = () => undefined) {
    const number = nextNumber();
    const recorder = new Recorder((stream, offset) => this.#link.acknowledge(number, stream, offset));
    recorder.onOutput = onOutput;
    const action = { type: "line", session: this.number, text: Buffer.from(text) } as const;
    await this.#link.start(number, { ...EXEC_DEFAULTS, action }, recorder);
    return { number, recorder };
  }

  async close(): Promise<void> {
    this.#link.signal(this.number, 9, "group");
    await this.recorder.status.promise;
    this.#link.forget(this.number);
  }
}

forEachBuild((build) => {
  describe(`sessions of the ${build} agent`, { timeout: 120_000 }, () => {
    if (!existsSync(SHELL)) {
      test("sessions", (t) => t.skip(`no ${SHELL} on this machine: install bash-static`));
      return;
    }

    test("lines have their own streams and status, and what a shell keeps is kept", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const first = await session.line("echo out; echo err >&2; (exit 7)");
      assert.deepEqual([first.code, first.out, first.err], [7, "out\n", "err\n"]);
      assert.equal((await session.line("echo $?")).out, "7\n");
      await session.line("x=1; export y=2; f() { echo f$x; }; cd /; alias z=echo; set -o pipefail");
      const kept = await session.line('f; sh -c "echo $y"; pwd; false | true');
      assert.deepEqual([kept.out, kept.code], ["f1\n2\n/\n", 1]);
      await session.close();
    });

    test("the next line runs whatever a line was: quotes that do not close, here-documents, return, break", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const cases: readonly (readonly [string, number, string, RegExp])[] = [
        ['echo "unbalanced', 2, "", /unexpected EOF while looking for matching/],
        ["if true; then", 2, "", /unexpected end of file/],
        ["cat <<E\nhere\nE", 0, "here\n", /^$/],
        ["cat <<E\nno end", 0, "no end\n", /here-document/],
        ["for i in 1 2\ndo echo $i\ndone", 0, "1\n2\n", /^$/],
        ["return 3", 3, "", /^$/],
        ["break; continue; }", 2, "", /syntax error/],
        ["break", 0, "", /only meaningful/],
        ["exec /nonexistent", 126 + 1, "", /No such file/],
        ["exec >/dev/null 2>&1 </dev/null; echo unseen", 0, "", /^$/],
        ["", 0, "", /^$/],
        ["# nothing", 0, "", /^$/],
        ["printf() { :; }; exit() { :; }", 0, "", /^$/],
        ["cat", 0, "", /^$/],
      ];
      for (const [line, code, out, err] of cases) {
        const result = await session.line(line);
        assert.deepEqual([result.code, result.out], [code, out], line);
        assert.match(result.err, err, line);
        assert.equal((await session.line("builtin echo next")).out, "next\n", line);
      }
      await session.close();
    });

    test("a line is bytes: not UTF-8, a megabyte long, without NUL", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const odd = await session.line(Buffer.from("printf '%s' '\xff\xfe\x80'", "latin1"));
      assert.equal(odd.out, "\xff\xfe\x80");
      const long = await session.line(`x=${"y".repeat(1024 * 1024 - 20)}; echo \${#x}`);
      assert.equal(long.out, `${1024 * 1024 - 20}\n`);
      await assert.rejects(session.line("a\0b"), { kind: "InvalidArgument" });
      await assert.rejects(session.line("y".repeat(1024 * 1024 + 1)), { kind: "InvalidArgument" });
      await session.close();
    });

    test("input is empty unless it is asked for", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      assert.deepEqual((await session.line("cat; echo over")).out, "over\n");
      const fed = await session.line("read -r a; cat; echo $a", { input: Buffer.from("one\ntwo\n") });
      assert.equal(fed.out, "two\none\n");
      const large = await session.line("wc -c", { input: Buffer.alloc(3_000_000) });
      assert.equal(large.out.trim(), "3000000");
      await session.close();
    });

    test("a line that ends the shell says how, and that the session ended with it", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const cases: readonly (readonly [string, string, number | undefined, string | undefined])[] = [
        ["exit 7", "exited", 7, undefined],
        ["set -e; true; (exit 4); echo not reached", "exited", 4, undefined],
        ["exec sh -c 'exit 9'", "exited", 9, undefined],
        ["kill -9 $$", "signaled", undefined, "SIGKILL"],
        ["kill -TERM $$", "signaled", undefined, "SIGTERM"],
        ["kill -9 $PPID; sleep 600", "signaled", undefined, "SIGKILL"],
        [`: \${nothing?}`, "exited", 1, undefined],
      ];
      for (const [line, cause, code, signal] of cases) {
        const session = await Session.open(link);
        const { end } = await session.line(line);
        assert.deepEqual([end.cause, end.code, end.signal, end.sessionEnded], [cause, code, signal, true], line);
        const own = await session.recorder.status.promise;
        assert.deepEqual([own.cause, own.code, own.signal], [cause, code, signal], line);
        await assert.rejects(session.line("true"), { kind: "FailedPrecondition" });
        link.forget(session.number);
      }
    });

    test("a user's session opens its lines' streams as the user", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect(), { user: "65534" });
      const result = await session.line("id -u; cat; echo err >&2", { input: Buffer.from("fed\n") });
      assert.deepEqual([result.code, result.out, result.err], [0, "65534\nfed\n", "err\n"]);
      await session.close();
    });

    test("a background job outlives its line, its output stays its line's, and a later line waits for it", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const session = await Session.open(link);
      const text = "(read -r x </tmp/nothing 2>/dev/null; sleep 0.2; echo late; exit 5) & echo first";
      const { number, recorder } = await session.begin(text);
      const end = await recorder.status.promise;
      assert.deepEqual([end.code, recorder.text("stdout")], [0, "first\n"]);
      const waited = await session.line("wait $!; echo $?");
      assert.equal(waited.out, "5\n");
      await recorder.drained.promise;
      assert.equal(recorder.text("stdout"), "first\nlate\n");
      link.forget(number);
      await session.close();
    });

    test("lines that come together run one after the other, in order", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const lines = Array.from({ length: 30 }, (_, at) => session.line(`n=$((\${n:-0}+1)); echo ${at}-$n`));
      const outs = (await Promise.all(lines)).map(({ out }) => out);
      assert.deepEqual(
        outs,
        Array.from({ length: 30 }, (_, at) => `${at}-${at + 1}\n`),
      );
      await session.close();
    });

    test("lines behind one that ends the session never run, and say so", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const lines = [session.line("sleep 0.1; exit 3"), session.line("echo a"), session.line("echo b")];
      const ends = (await Promise.all(lines)).map(({ end }) => [end.cause, end.code, end.sessionEnded]);
      assert.deepEqual(ends, [
        ["exited", 3, true],
        ["session-ended", undefined, undefined],
        ["session-ended", undefined, undefined],
      ]);
      await session.recorder.status.promise;
    });

    test("a time limit kills what the line started and spares what ran before; the shell comes back", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      await session.line("keep=1; sleep 600 & old=$!");
      for (const line of ["sleep 600; echo not-reached", "while :; do :; done", "f() { sleep 600; }; f; (sleep 600)"]) {
        const { end, out } = await session.line(line, { timeLimitMs: 50 });
        assert.deepEqual([end.cause, end.signal, end.sessionEnded, out], ["timeout", "SIGKILL", undefined, ""], line);
      }
      assert.equal((await session.line("kill -0 $old && echo $keep")).out, "1\n");
      await session.close();
    });

    test("a shell that does not come back in time ends with its line, by timeout", async () => {
      await using agent = await start(build);
      const session = await Session.open(await agent.connect());
      const { end } = await session.line("trap '' RTMIN+7; while :; do :; done", { timeLimitMs: 50 });
      assert.deepEqual([end.cause, end.signal, end.sessionEnded], ["timeout", "SIGKILL", true]);
      const own = await session.recorder.status.promise;
      assert.equal(own.cause, "timeout");
    });

    test("SIGINT gives a line up, and the session goes on; other signals reach what the line runs", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const session = await Session.open(link);
      for (const [signal, code] of [
        [2, 130],
        [15, 143],
        [9, 137],
      ] as const) {
        // What says so is what the signal is for: the shell has made it by then.
        const ready = Promise.withResolvers<void>();
        const { number, recorder } = await session.begin("sh -c 'echo ready; exec sleep 600'", () => ready.resolve());
        await ready.promise;
        link.signal(number, signal, "group");
        const end = await recorder.status.promise;
        link.forget(number);
        if (end.sessionEnded !== true) assert.equal(end.code, code);
        else assert.fail(`signal ${signal} ended the session`);
      }
      assert.equal((await session.line("echo alive")).out, "alive\n");
      await session.close();
    });

    test("SIGINT gives a line up whenever it comes, with all that it has called", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const lines = [
        "sleep 600; echo rest",
        "while :; do :; done",
        "f() { g; sleep 600; }; g() { sleep 600; }; f; sleep 600",
      ];
      for (let opened = 0; opened < 6; opened++) {
        const session = await Session.open(link);
        // The first one meets a shell that has not begun: from before it has the line to after its program runs.
        for (let round = 0; round < 12; round++) {
          const { number, recorder } = await session.begin(lines[round % lines.length] ?? "");
          await sleep(round + opened < 2 ? 0 : (round * opened) % 7);
          link.signal(number, 2, "group");
          const { cause, code, signal, sessionEnded } = await recorder.status.promise;
          link.forget(number);
          const seen = [cause, code, signal, sessionEnded, recorder.text("stdout")];
          const expected =
            cause === "signaled"
              ? [cause, undefined, "SIGINT", undefined, ""]
              : ["exited", 130, undefined, undefined, ""];
          assert.deepEqual(seen, expected, `round ${round}`);
        }
        assert.equal((await session.line("echo alive")).out, "alive\n");
        await session.close();
      }
    });

    test("SIGINT gives a line up that is beginning, however long the agent looks for what it has started", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const session = await Session.open(link);
      await session.line("echo begun");
      const crowd = Array.from({ length: 200 }, () => spawn("sleep", ["1000"]));
      try {
        for (let round = 0; round < 60; round++) {
          const { number, recorder } = await session.begin("sleep 600; echo rest");
          // From before the shell has it to after its program runs.
          const untilMs = performance.now() + round / 30;
          while (performance.now() < untilMs);
          link.signal(number, 2, "group");
          const { code } = await recorder.status.promise;
          assert.deepEqual([code, recorder.text("stdout")], [130, ""], `round ${round}`);
          link.forget(number);
        }
      } finally {
        for (const one of crowd) one.kill("SIGKILL");
      }
      await session.close();
    });

    test("what hears SIGINT and goes on is told once", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const session = await Session.open(link);
      const ready = Promise.withResolvers<void>();
      const text = `sh -c 'trap "echo heard; n=1" INT; echo ready; sleep 0.5; sleep 2; exit 3'; echo rest`;
      const { number, recorder } = await session.begin(text, () => ready.resolve());
      await ready.promise;
      link.signal(number, 2, "group");
      const end = await recorder.status.promise;
      assert.deepEqual([end.code, recorder.text("stdout")], [130, "ready\nheard\n"]);
      link.forget(number);
      await session.close();
    });

    test("ending a session kills its whole tree, what left it included", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const session = await Session.open(link);
      const started = await session.line(
        "sleep 600 & a=$!; setsid sleep 600 & b=$!; (setsid sh -c 'sleep 600 & echo $! >/tmp/dsec-c.'$$) & wait $!; echo $a $b $(cat /tmp/dsec-c.$$); rm /tmp/dsec-c.$$",
      );
      const pids = started.out.trim().split(" ").map(Number);
      assert.equal(pids.length, 3, started.out + started.err);
      for (const pid of pids) assert.ok(existsSync(`/proc/${pid}`), `${pid} runs`);
      await session.close();
      for (const pid of pids) assert.ok(!existsSync(`/proc/${pid}`), `${pid} is gone`);
    });

    test("the shell's start reads no file of the user, and inherits no descriptor", async () => {
      await using agent = await start(build);
      const env = { PATH: "/usr/bin:/bin", BASH_ENV: "/nonexistent/hook", "BASH_FUNC_ls%%": "() { echo hijacked; }" };
      const session = await Session.open(await agent.connect(), { env });
      const listed = await session.line("ls /proc/self/fd; echo $- $0");
      assert.match(listed.out, /^0\n1\n2\n3\nhB bash\n$/);
      assert.equal(listed.err, "");
      assert.deepEqual(session.recorder.text("stderr"), "");
      await session.close();
    });

    test("sessions survive the connection, with the line that runs in them", async () => {
      await using agent = await start(build);
      const first = await agent.connect();
      const session = await Session.open(first);
      const number = nextNumber();
      const recorder = new Recorder(() => undefined);
      const text = Buffer.from("v=5; sleep 0.3; echo done; (exit 6)");
      await first.start(
        number,
        { ...EXEC_DEFAULTS, action: { type: "line", session: session.number, text } },
        recorder,
      );
      const second = await agent.connect();
      const reports = await second.list();
      assert.deepEqual(
        reports.map((report) => report.number).toSorted((a, b) => a - b),
        [session.number, number].toSorted((a, b) => a - b),
      );
      const again = new Recorder((stream, offset) => second.acknowledge(number, stream, offset));
      second.attach(number, { stdout: 0, stderr: 0 }, again);
      second.attach(session.number, { stdout: 0, stderr: 0 }, session.recorder);
      const end = await again.status.promise;
      assert.deepEqual([end.code, again.text("stdout")], [6, "done\n"]);
      const later = await run(second, { type: "line", session: session.number, text: Buffer.from("echo $v-$?") });
      assert.equal(later.stdout.toString(), "5-6\n");
      second.forget(session.number);
    });

    test("an agent without a shell, and a line without a session, are refused by name", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      await assert.rejects(Session.open(link), { kind: "FailedPrecondition", message: /without a shell/ });
      const stray = { type: "line", session: 4_000_000, text: Buffer.from("true") } as const;
      await assert.rejects(run(link, stray), { kind: "FailedPrecondition", message: /session has ended/ });
    });

    test("a hundred sessions at once", async () => {
      await using agent = await start(build);
      const link = await agent.connect();
      const sessions = await Promise.all(Array.from({ length: 100 }, () => Session.open(link)));
      const outs = await Promise.all(
        sessions.map((session, at) => session.line(`x=${at}`).then(() => session.line("echo $x"))),
      );
      assert.deepEqual(
        outs.map(({ out }) => out),
        sessions.map((_, at) => `${at}\n`),
      );
      await Promise.all(sessions.map((session) => session.close()));
    });
  });
});
