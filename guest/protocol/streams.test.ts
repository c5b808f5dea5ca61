import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import type { GuestLink } from "#core/guest.ts";
import { EXEC_DEFAULTS, exec, forEachBuild, nextNumber, Recorder, run, shell, TestAgent } from "./testing.ts";

const MiB = 1024 * 1024;
const WINDOW_BYTES = 256 * 1024;

function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Starts a shell line whose output the test acknowledges itself. */
async function begin(link: GuestLink, line: string, stdin: "none" | "pipe" = "none", acknowledge = false) {
  const number = nextNumber();
  const recorder = new Recorder((stream, offset) => acknowledge && link.acknowledge(number, stream, offset));
  await link.start(number, { ...EXEC_DEFAULTS, stdin, action: exec("/bin/sh", "-c", line) }, recorder);
  return { number, recorder };
}

/** Resolves once the recorder holds so much of stdout. */
function reaches(recorder: Recorder, bytes: number): Promise<void> {
  return new Promise((resolve) => {
    recorder.onOutput = () => {
      if (recorder.received.stdout >= bytes) resolve();
    };
    recorder.onOutput("stdout", recorder.received.stdout);
  });
}

forEachBuild((build) => {
  describe(`streams of the ${build} agent`, () => {
    test("10 MB of random bytes pass stdin, stdout and stderr unchanged", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const input = randomBytes(10_000_000);
      const { stdout, stderr, end } = await shell(link, "tee /dev/stderr", { input });
      assert.equal(end.code, 0);
      assert.equal(digest(stdout), digest(input));
      assert.equal(digest(stderr), digest(input));
      link.close();
    });

    test("the end of a command does not wait for output that another one has read back out of the pipe", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const done = join(agent.directory, "done");
      const thief = `while [ -d /proc/$$ ]; do sleep 0.02; done; dd bs=64k count=1 <&3 >/dev/null 2>&1; touch ${done}; sleep 60`;
      const line = `exec 3</proc/self/fd/1; (${thief}) & head -c ${WINDOW_BYTES + 30_000} /dev/zero`;
      const { number, recorder } = await begin(link, line);
      await reaches(recorder, WINDOW_BYTES);
      while (!existsSync(done)) await setTimeout(10);
      link.acknowledge(number, "stdout", WINDOW_BYTES);
      assert.equal((await recorder.status.promise).code, 0);
      link.close();
    });

    test("the ends of streams that a running leader has closed are told while it runs", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { recorder, number } = await begin(link, "echo x; exec >&- 2>&-; read y", "pipe", true);
      await recorder.drained.promise;
      assert.deepEqual([recorder.text("stdout"), recorder.receivedAtEnd], ["x\n", undefined]);
      link.closeStdin(number);
    });

    test("stdin that is none is empty, stdin that is closed ends", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      assert.equal((await run(link, exec("cat"))).stdout.length, 0);
      assert.equal((await run(link, exec("wc", "-c"), { input: Buffer.alloc(0) })).stdout.toString().trim(), "0");
      const none = await begin(link, "sleep 60");
      await assert.rejects(link.writeStdin(none.number, 0, Buffer.from("x")), { kind: "FailedPrecondition" });
      link.close();
    });

    test("input that nobody reads any more is taken and dropped", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { end, stdout } = await shell(link, "head -c 5; exec 0<&-; sleep 0.1", { input: randomBytes(MiB) });
      assert.equal(end.code, 0);
      assert.equal(stdout.length, 5);
      link.close();
    });

    test("a writer waits when the task does not read, and other tasks do not", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { number, recorder } = await begin(link, "read line; cat | wc -c", "pipe", true);
      await link.writeStdin(number, 0, Buffer.from(""));
      let taken = false;
      const write = link.writeStdin(number, 0, Buffer.alloc(2 * MiB, "x\n")).then(() => {
        taken = true;
      });
      const stopped = await begin(link, "kill -STOP $$; cat >/dev/null", "pipe", true);
      const blocked = link.writeStdin(stopped.number, 0, Buffer.alloc(2 * MiB));
      blocked.catch(() => {});
      for (let i = 0; i < 20; i++) assert.equal((await shell(link, "echo ok")).stdout.toString(), "ok\n");
      await write;
      assert.equal(taken, true);
      link.closeStdin(number);
      await recorder.status.promise;
      assert.equal(recorder.text("stdout").trim(), String(2 * MiB - 2));
      link.forget(stopped.number);
      await assert.rejects(blocked, { kind: "Cancelled" });
      link.close();
    });

    test("a repeated write is harmless, one with a gap is refused", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { number, recorder } = await begin(link, "cat", "pipe", true);
      await link.writeStdin(number, 0, Buffer.from("abcdef"));
      await link.writeStdin(number, 0, Buffer.from("abcdef"));
      await link.writeStdin(number, 3, Buffer.from("defghi"));
      await assert.rejects(link.writeStdin(number, 10, Buffer.from("x")), { kind: "FailedPrecondition" });
      await link.writeStdin(number, 9, Buffer.from("jkl"));
      link.closeStdin(number);
      assert.equal((await recorder.status.promise).code, 0);
      assert.equal(recorder.text("stdout"), "abcdefghijkl");
      link.close();
    });

    test("no more than a window comes unacknowledged, and the writer waits", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { number, recorder } = await begin(link, "head -c 1000000 /dev/zero; echo done >&2");
      await reaches(recorder, WINDOW_BYTES);
      await link.ping(5000);
      for (let i = 0; i < 10; i++) await shell(link, "true");
      assert.equal(recorder.received.stdout, WINDOW_BYTES);
      assert.equal(recorder.received.stderr, 0);
      link.acknowledge(number, "stdout", 100_000);
      await reaches(recorder, WINDOW_BYTES + 100_000);
      await link.ping(5000);
      assert.equal(recorder.received.stdout, WINDOW_BYTES + 100_000);
      recorder.onOutput = (stream, total) => link.acknowledge(number, stream, total);
      link.acknowledge(number, "stdout", recorder.received.stdout);
      await recorder.status.promise;
      assert.equal(recorder.received.stdout, 1_000_000);
      assert.equal(recorder.text("stderr"), "done\n");
      link.close();
    });

    test("the end comes after all output the leader wrote, and does not wait for a child that holds it", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const held = await begin(link, "(sleep 0.4; echo late) & head -c 200000 /dev/zero; exit 5", "none", true);
      const end = await held.recorder.status.promise;
      assert.equal(end.code, 5);
      assert.equal(held.recorder.receivedAtEnd?.stdout, 200_000);
      assert.equal(held.recorder.finished.stdout, false);
      await held.recorder.drained.promise;
      assert.equal(held.recorder.received.stdout, 200_005);
      link.close();
    });

    test("a connection broken in mid-output loses nothing and doubles nothing", async () => {
      await using agent = await TestAgent.start({ build });
      let link = await agent.connect();
      const number = nextNumber();
      let upTo = 0;
      const recorder = new Recorder((stream, offset) => {
        // Acknowledges late, so that the agent holds bytes which were sent already.
        if (offset - upTo > 100_000) {
          upTo = offset;
          link.acknowledge(number, stream, offset);
        }
      });
      const line = "i=0; while [ $i -lt 60000 ]; do echo line-$i-of-many; i=$((i+1)); done; exit 9";
      await link.start(number, { ...EXEC_DEFAULTS, action: exec("/bin/sh", "-c", line) }, recorder);
      for (let breaks = 1; breaks <= 10; breaks++) {
        await reaches(recorder, breaks * 60_000);
        link.close();
        await link.closed;
        link = await agent.connect();
        const report = (await link.list()).find((task) => task.number === number);
        assert.ok(report !== undefined);
        assert.ok(report.streams.stdout.from <= recorder.received.stdout);
        upTo = recorder.received.stdout;
        link.attach(number, recorder.received, recorder);
      }
      assert.equal((await recorder.status.promise).code, 9);
      const expected = Array.from({ length: 60_000 }, (_, index) => `line-${index}-of-many\n`).join("");
      assert.equal(digest(Buffer.from(recorder.text("stdout"))), digest(Buffer.from(expected)));
      link.close();
    });

    test("an end that came while nobody was connected is told by list, and again after attach", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const { number, recorder } = await begin(first, "echo out; echo err >&2; exit 4");
      await recorder.status.promise;
      first.close();
      await first.closed;
      const second = await agent.connect();
      const [report] = await second.list();
      assert.equal(report?.number, number);
      assert.equal(report?.end?.code, 4);
      assert.deepEqual(report?.streams, { stdout: { from: 0, to: 4 }, stderr: { from: 0, to: 4 } });
      const again = new Recorder(() => {});
      second.attach(number, { stdout: 0, stderr: 0 }, again);
      assert.equal((await again.status.promise).code, 4);
      await again.drained.promise;
      assert.deepEqual([again.text("stdout"), again.text("stderr")], ["out\n", "err\n"]);
      second.close();
    });

    test("an attach outside of what the agent holds ends the connection, not the task", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const { number, recorder } = await begin(first, "echo out; sleep 60");
      await reaches(recorder, 4);
      first.close();
      const second = await agent.connect();
      second.attach(number, { stdout: 5, stderr: 0 }, recorder);
      await second.closed;
      const third = await agent.connect();
      assert.equal((await third.list())[0]?.number, number);
      third.close();
    });

    test("a newer connection replaces the older one", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const second = await agent.connect();
      await first.closed;
      await assert.rejects(first.list(), { kind: "Unavailable" });
      await second.ping(5000);
      second.close();
    });

    test("stdin goes on over a new connection from where the agent stands", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const { number } = await begin(first, "cat", "pipe");
      await first.writeStdin(number, 0, Buffer.from("hello "));
      first.close();
      const second = await agent.connect();
      const recorder = new Recorder(() => {});
      second.attach(number, { stdout: 0, stderr: 0 }, recorder);
      await second.writeStdin(number, 0, Buffer.from("hello world"));
      second.closeStdin(number);
      assert.equal((await recorder.status.promise).code, 0);
      assert.equal(recorder.text("stdout"), "hello world");
      second.close();
    });

    test("100 tasks that flood at once share the connection and all arrive whole", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const results = await Promise.all(
        Array.from({ length: 100 }, (_, index) => shell(link, `head -c 300000 /dev/zero | tr '\\0' '${index % 10}'`)),
      );
      results.forEach((result, index) => {
        assert.equal(result.stdout.length, 300_000);
        assert.ok(result.stdout.every((byte) => byte === 48 + (index % 10)));
      });
      link.close();
    });
  });
});
