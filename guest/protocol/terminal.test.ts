import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import type { GuestLink } from "#core/guest.ts";
import type { OutputStream, TerminalSize } from "#core/sandbox.ts";
import { EXEC_DEFAULTS, exec, forEachBuild, nextNumber, Recorder, TestAgent } from "./testing.ts";

const SIZE: TerminalSize = { rows: 24, cols: 80 };

interface Typed {
  readonly number: number;
  readonly recorder: Recorder;
  /** Resolves when stdout contains the text. */
  shows(text: string): Promise<void>;
}

/** Starts a shell line on a terminal. */
async function start(link: GuestLink, line: string, user = "root"): Promise<Typed> {
  const number = nextNumber();
  const recorder = new Recorder((stream: OutputStream, offset) => link.acknowledge(number, stream, offset));
  const action = { ...exec("/bin/sh", "-c", line), terminal: SIZE };
  await link.start(number, { ...EXEC_DEFAULTS, user, stdin: "pipe", env: { TERM: "xterm" }, action }, recorder);
  const shows = (text: string) =>
    new Promise<void>((resolve) => {
      recorder.onOutput = () => recorder.text("stdout").includes(text) && resolve();
      recorder.onOutput("stdout", 0);
    });
  return { number, recorder, shows };
}

async function finished(link: GuestLink, { number, recorder }: Typed) {
  const end = await recorder.status.promise;
  link.forget(number);
  return { end, text: recorder.text("stdout") };
}

function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

forEachBuild((build) => {
  describe(`a terminal of the ${build} agent`, { timeout: 120_000 }, () => {
    test("is input, output and errors of its command, controls it, and has the size asked for", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const line = "test -t 0 && test -t 1 && test -t 2 && stty size && echo to-stderr >&2 && : <>/dev/tty && tty";
      const typed = await start(link, line);
      const { end, text } = await finished(link, typed);
      assert.equal(end.code, 0, text);
      assert.match(text, /^24 80\r\nto-stderr\r\n\/dev\/pts\/\d+\r\n$/);
      assert.equal(typed.recorder.finished.stderr, true, "the second output ends at once");
    });

    test("belongs to the command's user", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const { end, text } = await finished(link, await start(link, ': <>"$(tty)" && id -u', "65534"));
      assert.deepEqual([end.code, text], [0, "65534\r\n"]);
    });

    test("PTY loses part of 100 KB of output: all that was written is there at the end, every time", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const expected = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("");
      for (let round = 0; round < 25; round++) {
        const typed = await start(link, "stty -opost; seq 1 20000");
        const { text } = await finished(link, typed);
        assert.equal(typed.recorder.receivedAtEnd?.stdout, expected.length, `round ${round}`);
        assert.equal(text, expected);
      }
    });

    test("a background child that holds it does not delay the end", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const typed = await start(link, "trap '' HUP; sleep 600 & echo started $!");
      const { end, text } = await finished(link, typed);
      assert.equal(end.code, 0);
      assert.equal(typed.recorder.finished.stdout, false);
      process.kill(Number(/started (\d+)/.exec(text)?.[1]));
    });

    test("megabytes of raw input arrive with the right digest", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const bytes = Buffer.alloc(4 * 1024 * 1024, "0123456789abcdef\x03\x04\x11\x13\x1a\r\n\x7f\xff");
      const typed = await start(link, `stty raw -echo; echo ready; head -c ${bytes.length} | sha256sum`);
      await typed.shows("ready");
      await link.writeStdin(typed.number, 0, bytes);
      const { text } = await finished(link, typed);
      assert.ok(text.includes(digest(bytes)), text);
    });

    test("a closed input is the end of file, also after a line that was only begun", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      for (const input of ["", "whole line\n", "begun"]) {
        const typed = await start(link, "stty -echo; echo ready; cat; echo over");
        await typed.shows("ready");
        if (input !== "") await link.writeStdin(typed.number, 0, Buffer.from(input));
        link.closeStdin(typed.number);
        const { end, text } = await finished(link, typed);
        assert.deepEqual([end.code, text], [0, `ready\r\n${input.replace("\n", "\r\n")}over\r\n`]);
      }
    });

    test("an interrupt character is a SIGINT to the foreground", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const typed = await start(link, "echo ready; exec sleep 600");
      await typed.shows("ready");
      await link.writeStdin(typed.number, 0, Buffer.from("\x03"));
      const { end } = await finished(link, typed);
      assert.deepEqual([end.cause, end.signal], ["signaled", "SIGINT"]);
    });

    test("a new size is told with a SIGWINCH", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const typed = await start(link, "trap 'stty size; exit 3' WINCH; echo ready; while :; do read -r line; done");
      await typed.shows("ready");
      link.resize(typed.number, { rows: 50, cols: 132 });
      const { end, text } = await finished(link, typed);
      assert.deepEqual([end.code, text], [3, "ready\r\n50 132\r\n"]);
    });

    test("a new connection goes on from the output it has, and learns how far the input is", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const typed = await start(first, "stty -echo; echo ready; read -r a; read -r b; echo $a-$b");
      await typed.shows("ready");
      await first.writeStdin(typed.number, 0, Buffer.from("one\n"));
      const second = await agent.connect();
      await first.closed;
      const recorder = new Recorder((stream, offset) => second.acknowledge(typed.number, stream, offset));
      await second.list();
      second.attach(typed.number, typed.recorder.received, recorder);
      recorder.received.stdout = typed.recorder.received.stdout;
      assert.equal(await second.takeInput(typed.number), 4);
      await second.writeStdin(typed.number, 4, Buffer.from("two\n"));
      await recorder.status.promise;
      assert.equal(recorder.text("stdout"), "one-two\r\n");
      second.forget(typed.number);
    });
  });
});
