import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import type { GuestLink } from "#core/guest.ts";
import { signalName } from "./failures.ts";
import { EXEC_DEFAULTS, exec, forEachBuild, nextNumber, Recorder, run, shell, TestAgent } from "./testing.ts";

async function withAgent(build: "static" | "asan", use: (link: GuestLink, agent: TestAgent) => Promise<void>) {
  await using agent = await TestAgent.start({ build });
  const link = await agent.connect();
  await use(link, agent);
  link.close();
}

forEachBuild((build) => {
  describe(`commands of the ${build} agent`, () => {
    test("an exit code arrives as it was given", async () => {
      await withAgent(build, async (link) => {
        for (const code of [0, 1, 2, 42, 126, 127, 128, 137, 255]) {
          const { end } = await shell(link, `exit ${code}`);
          assert.deepEqual([end.cause, end.code, end.signal], ["exited", code, undefined]);
        }
      });
    });

    test("every signal that ends a leader is reported by name, never as a code", async () => {
      await withAgent(build, async (link) => {
        const survived = new Set([
          "SIGCHLD",
          "SIGCONT",
          "SIGURG",
          "SIGWINCH",
          "SIGSTOP",
          "SIGTSTP",
          "SIGTTIN",
          "SIGTTOU",
        ]);
        const numbers = new Set<number>(Object.values(constants.signals));
        for (const signal of [...numbers, 34, 64]) {
          const name = signalName(signal);
          if (survived.has(name)) continue;
          const { end } = await shell(link, `ulimit -c 0; kill -${signal} $$; sleep 5`);
          assert.deepEqual([end.cause, end.code, end.signal], ["signaled", undefined, name]);
        }
      });
    });

    test("what a command used is measured", async () => {
      await withAgent(build, async (link) => {
        const { end } = await shell(link, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.05");
        assert.ok(end.cpuMs > 5, `${end.cpuMs} ms of processor time`);
        assert.ok(end.wallMs >= 50 && end.wallMs >= end.cpuMs * 0.9, `${end.wallMs} ms`);
        assert.ok(end.maxRssKiB > 100);
      });
    });

    test("a program that is not there is CommandNotFound, one that cannot run CommandNotExecutable", async () => {
      await withAgent(build, async (link) => {
        await assert.rejects(run(link, exec("no-such-program")), { kind: "CommandNotFound" });
        await assert.rejects(run(link, exec("/no/such/program")), { kind: "CommandNotFound" });
        await assert.rejects(run(link, exec("/etc/passwd/x")), { kind: "CommandNotFound" });
        await assert.rejects(run(link, exec("/etc/passwd")), { kind: "CommandNotExecutable" });
        await assert.rejects(run(link, exec("/usr")), { kind: "CommandNotExecutable" });
        await shell(link, "printf '#!/no/such/shell\\n' > /tmp/dsec-bad-$PPID; chmod 755 /tmp/dsec-bad-$PPID");
        const path = `/tmp/dsec-bad-${link.hello.pid}`;
        try {
          await assert.rejects(run(link, exec(path)), { kind: "CommandNotExecutable", message: /interpreter/ });
        } finally {
          await run(link, { type: "remove", path: Buffer.from(path), recursive: false });
        }
      });
    });

    test("a working directory that cannot be entered is InvalidArgument", async () => {
      await withAgent(build, async (link) => {
        await assert.rejects(run(link, exec("true"), { cwd: "/no/such" }), {
          kind: "InvalidArgument",
          message: /ENOENT/,
        });
        await assert.rejects(run(link, exec("true"), { cwd: "/etc/passwd" }), { kind: "InvalidArgument" });
        await assert.rejects(run(link, exec("true"), { cwd: "/root", user: "nobody" }), { kind: "InvalidArgument" });
        assert.equal((await run(link, exec("pwd"), { cwd: "/usr/bin" })).stdout.toString(), "/usr/bin\n");
      });
    });

    test("the environment is what was given, plus PATH and who one is", async () => {
      await withAgent(build, async (link) => {
        const plain = await run(link, exec("/usr/bin/env"));
        assert.deepEqual(plain.stdout.toString().trim().split("\n").sort(), [
          "HOME=/root",
          "LOGNAME=root",
          "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          "USER=root",
        ]);
        const own = { PATH: "/bin", HOME: "/h", USER: "u", LOGNAME: "l", EMPTY: "", ODD: "a=b\nc é" };
        const given = await run(link, exec("/usr/bin/env", "-0"), { env: own });
        assert.deepEqual(
          given.stdout.toString().split("\0").filter(Boolean).sort(),
          Object.entries(own)
            .map(([name, value]) => `${name}=${value}`)
            .sort(),
        );
        await assert.rejects(run(link, exec("true"), { env: { PATH: "/nowhere" } }), { kind: "CommandNotFound" });
      });
    });

    test("arguments of 1 MiB, and bytes that are not UTF-8, arrive unchanged", async () => {
      await withAgent(build, async (link) => {
        const argument = Buffer.alloc(64 * 1024, "x");
        const argv = [Buffer.from("/usr/bin/printf"), Buffer.from("%s"), ...Array<Buffer>(16).fill(argument)];
        const big = await run(link, { type: "exec", argv });
        assert.equal(big.stdout.length, 1024 * 1024);
        const odd = Buffer.from([0xff, 0xfe, 0x80, 0x0a, 0xc3, 0x28]);
        const echoed = await run(link, { type: "exec", argv: [Buffer.from("printf"), Buffer.from("%s"), odd] });
        assert.deepEqual(echoed.stdout, odd);
        const many = Array.from({ length: 100_000 }, () => Buffer.from("a"));
        const counted = await run(link, {
          type: "exec",
          argv: [..."sh,-c,echo $#,x".split(",").map((a) => Buffer.from(a)), ...many],
        });
        assert.equal(counted.stdout.toString(), "100000\n");
      });
    });

    test("arguments larger than the kernel takes are InvalidArgument", async () => {
      await withAgent(build, async (link) => {
        const one = Buffer.alloc(128 * 1024, "x");
        await assert.rejects(run(link, { type: "exec", argv: [Buffer.from("echo"), one] }), {
          kind: "InvalidArgument",
        });
        const pieces = Array<Buffer>(21).fill(Buffer.alloc(100_000, "x"));
        const big = { type: "exec", argv: [Buffer.from("/bin/echo"), ...pieces] } as const;
        await assert.rejects(run(link, big), { kind: "InvalidArgument", message: /bytes of arguments/ });
        // Small for a frame, but each argument costs the kernel a pointer too.
        const many = Array.from({ length: 200_000 }, () => Buffer.from("xx"));
        const most = { type: "exec", argv: [Buffer.from("/bin/true"), ...many] } as const;
        await assert.rejects(run(link, most), { kind: "InvalidArgument", message: /larger than the kernel/ });
      });
    });

    test("a time limit kills the whole group and keeps its output", async () => {
      await withAgent(build, async (link) => {
        const begin = performance.now();
        const { end, stdout } = await shell(link, "echo before; sleep 60 & echo $!; sleep 60", { timeLimitMs: 300 });
        assert.deepEqual([end.cause, end.code, end.signal], ["timeout", undefined, "SIGKILL"]);
        assert.ok(performance.now() - begin < 5000);
        assert.ok(end.wallMs >= 300, `${end.wallMs}`);
        const [before, background] = stdout.toString().split("\n");
        assert.equal(before, "before");
        const gone = await shell(
          link,
          `for i in 1 2 3 4 5 6 7 8 9; do kill -0 ${background} 2>/dev/null || exit 0; sleep 0.1; done; exit 1`,
        );
        assert.equal(gone.end.code, 0);
      });
    });

    test("a command within its time limit ends by itself", async () => {
      await withAgent(build, async (link) => {
        const { end } = await shell(link, "exit 7", { timeLimitMs: 10_000 });
        assert.deepEqual([end.cause, end.code], ["exited", 7]);
        await assert.rejects(shell(link, "true", { timeLimitMs: 0 }), { kind: "InvalidArgument" });
      });
    });

    test("signals reach the leader, or its group, and nobody after its end", async () => {
      await withAgent(build, async (link) => {
        for (const scope of ["leader", "group"] as const) {
          const number = nextNumber();
          const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
          const said = Promise.withResolvers<void>();
          recorder.onOutput = () => said.resolve();
          const line =
            "trap 'echo leader; exit 0' TERM; sh -c 'trap \"echo child; exit 0\" TERM; echo up; i=0; while [ $i -lt 100 ]; do sleep 0.02; i=$((i+1)); done' & wait; wait";
          await link.start(number, { ...EXEC_DEFAULTS, action: exec("/bin/sh", "-c", line) }, recorder);
          await said.promise;
          link.signal(number, constants.signals.SIGTERM, scope);
          const end = await recorder.status.promise;
          assert.equal(end.code, 0);
          link.signal(number, constants.signals.SIGKILL, "group");
          if (scope === "group") await recorder.drained.promise;
          assert.equal(recorder.text("stdout").includes("child"), scope === "group");
          link.forget(number);
        }
      });
    });

    test("a number that is taken is refused, and free again once forgotten", async () => {
      await withAgent(build, async (link, agent) => {
        const number = nextNumber();
        const recorder = new Recorder(() => {});
        const spec = { ...EXEC_DEFAULTS, action: exec("sleep", "60") };
        await link.start(number, spec, recorder);
        const other = await agent.connect();
        await assert.rejects(other.start(number, spec, new Recorder(() => {})), { kind: "AlreadyExists" });
        other.forget(number);
        const again = new Recorder(() => {});
        await other.start(number, { ...spec, action: exec("true") }, again);
        assert.equal((await again.status.promise).code, 0);
        other.close();
      });
    });

    test("forgetting a running task kills its group", async () => {
      await withAgent(build, async (link) => {
        const number = nextNumber();
        const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
        const said = Promise.withResolvers<void>();
        recorder.onOutput = () => said.resolve();
        const { pid } = await link.start(
          number,
          { ...EXEC_DEFAULTS, action: exec("/bin/sh", "-c", "sleep 60 & echo $!; sleep 60") },
          recorder,
        );
        await said.promise;
        link.forget(number);
        const background = recorder.text("stdout").trim();
        const line = `for i in 1 2 3 4 5 6 7 8 9; do kill -0 ${pid} 2>/dev/null || kill -0 ${background} 2>/dev/null || exit 0; sleep 0.1; done; exit 1`;
        assert.equal((await shell(link, line)).end.code, 0);
        assert.deepEqual((await link.list()).map((report) => report.number).includes(number), false);
      });
    });

    test("500 commands at once all run", async () => {
      await withAgent(build, async (link) => {
        const runs = Array.from({ length: 500 }, (_, index) => shell(link, `echo ${index}; exit ${index % 200}`));
        const results = await Promise.all(runs);
        results.forEach((result, index) => {
          assert.equal(result.stdout.toString(), `${index}\n`);
          assert.equal(result.end.code, index % 200);
        });
        assert.equal((await link.list()).length, 0);
      });
    });

    test("records are bounded: the task beyond them is refused, and taken once one is forgotten", async () => {
      await withAgent(build, async (link) => {
        const first = nextNumber();
        const starts = [first];
        const action = exec("/bin/true");
        await link.start(first, { ...EXEC_DEFAULTS, action }, new Recorder(() => {}));
        for (let batch = 0; batch < 33; batch++) {
          const wave = Array.from({ length: 31 }, () => nextNumber());
          starts.push(...wave);
          await Promise.all(wave.map((n) => link.start(n, { ...EXEC_DEFAULTS, action }, new Recorder(() => {}))));
        }
        assert.equal(starts.length, 1024);
        await assert.rejects(run(link, action), { kind: "SandboxLimit" });
        link.forget(first);
        assert.equal((await run(link, action)).end.code, 0);
        assert.equal((await link.list()).length, 1023);
      });
    });
  });
});
