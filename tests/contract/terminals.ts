import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { type Attachment, Client, type Command, type CommandLine, DsecError, type Sandbox } from "#sdk";
import { READY_MS, type TestNode } from "../support/node.ts";
import type { ContractBackend } from "./backend.ts";

const MIB = 1024 * 1024;
/** To find nobody so often takes a few seconds. */
const ATTEMPTS = 6;

/** Commands on terminals, and attaching to any command. */
export function terminalsContract(backend: ContractBackend): void {
  describe(`terminals in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node, { resources: { memoryMiB: 256 } });
    });
    after(() => node[Symbol.asyncDispose]());

    const open = (line: CommandLine) => sandbox.terminal({ line, size: { rows: 30, cols: 100 } });

    test("a terminal has a size, a TERM, one output, and the sandbox's own names", async () => {
      const result = await (await open("tty; stty size; echo $TERM; echo err >&2; test -t 0 && test -t 2")).result();
      assert.deepEqual([result.ok, result.stderrText], [true, ""]);
      assert.match(result.stdoutText, /^\/dev\/pts\/0\r\n30 100\r\nxterm\r\nerr\r\n$/);
    });

    test("a command without a terminal cannot be resized, one with it can", async () => {
      const plain = await sandbox.start("sleep 600");
      await assert.rejects(plain.resize({ rows: 1, cols: 1 }), { kind: "FailedPrecondition" });
      await plain.signal("SIGKILL");
      const terminal = await open("trap 'stty size; exit 4' WINCH; echo ready; while :; do read -r x; done");
      await using attached = await terminal.attach();
      await shown(attached, "ready");
      await terminal.resize({ rows: 50, cols: 132 });
      assert.deepEqual((await terminal.wait()).status.code, 4);
      assert.match((await terminal.result()).stdoutText, /50 132/);
      await assert.rejects(terminal.resize({ rows: 0, cols: 1 }), { kind: "InvalidArgument" });
    });

    test("what is typed arrives, what is shown comes back, and the end is the program's", async () => {
      const terminal = await open(["/bin/sh"]);
      await using attached = await terminal.attach({ input: true });
      await attached.write("echo $((6*7))-x; exit 5\n");
      const seen: string[] = [];
      let code: number | undefined;
      for await (const event of attached) {
        if (event.type === "output") seen.push(Buffer.from(event.bytes).toString());
        if (event.type === "exit") code = event.command.status.code;
      }
      assert.match(seen.join(""), /42-x/);
      assert.equal(code, 5);
    });

    test("PTY loses part of 100 KB of output: 64 MB arrive with the right digest", async () => {
      const terminal = await open("stty raw; echo ready; head -c 67108864 /dev/zero | tr '\\0' 'x'");
      const hash = createHash("sha256");
      let bytes = 0;
      await using attached = await terminal.attach({ hold: true });
      for await (const event of attached) {
        assert.notEqual(event.type, "gap");
        if (event.type !== "output") continue;
        hash.update(event.bytes);
        bytes += event.bytes.byteLength;
      }
      const expected = createHash("sha256").update("ready\n");
      for (let at = 0; at < 64; at++) expected.update("x".repeat(MIB));
      assert.equal(bytes, 64 * MIB + 6);
      assert.equal(hash.digest("hex"), expected.digest("hex"));
    });

    test("megabytes that are typed into a raw terminal arrive with the right digest", async () => {
      const bytes = Buffer.alloc(4 * MIB, "0123456789\x03\x04\x11\x13\x1a\r\n\x7f\xff\x00");
      const terminal = await open(`stty raw -echo; echo ready; head -c ${bytes.length} | sha256sum`);
      await using attached = await terminal.attach({ input: true });
      await shown(attached, "ready");
      await attached.write(bytes);
      const { stdoutText } = await terminal.result();
      assert.ok(stdoutText.includes(createHash("sha256").update(bytes).digest("hex")), stdoutText);
    });

    test("Attach loses earlier output: any number of attachers replay from an offset", async () => {
      const terminal = await open("stty -opost; seq 1 1000; echo over; read -r x");
      const whole = `${Array.from({ length: 1000 }, (_, at) => at + 1).join("\n")}\nover\n`;
      const texts = await Promise.all(
        [0, 0, 0, 17, 3000].map(async (stdout) => {
          await using attached = await terminal.attach({ stdout });
          return await shown(attached, "over\n");
        }),
      );
      assert.deepEqual(texts, [whole, whole, whole, whole.slice(17), whole.slice(3000)]);
      await terminal.signal("SIGHUP");
    });

    test("who takes the input displaces the writer before, who is told", async () => {
      const terminal = await open("stty -echo; echo ready; read -r a; read -r b; echo $a-$b");
      await using first = await terminal.attach({ input: true });
      await shown(first, "ready");
      await first.write("one\n");
      await using second = await terminal.attach({ input: true });
      for await (const event of first) if (event.type === "input-lost") break;
      await assert.rejects(first.write("lost\n"), { kind: "FailedPrecondition" });
      await assert.rejects(terminal.write("lost\n"), { kind: "FailedPrecondition" });
      await second.write("two\n");
      assert.match(await shown(second, "one-two"), /one-two/);
    });

    test("a writer that comes back without having taken the input is not skipped silently", async () => {
      const command = await sandbox.start("cat", { stdin: "pipe" });
      await command.write("abc");
      {
        await using attached = await command.attach({ input: true });
        await attached.write("def");
      }
      await released(() => command.write("ghi"));
      await command.signal("SIGKILL");
    });

    test("any command is attached to: two outputs, a half-closed input, its end", async () => {
      const command = await sandbox.start("cat; echo done >&2; exit 3", { stdin: "pipe" });
      await using attached = await command.attach({ input: true });
      const writing = attached.write("x".repeat(MIB)).then(() => attached.closeInput());
      const sizes = { stdout: 0, stderr: 0 };
      let code: number | undefined;
      for await (const event of attached) {
        if (event.type === "output") sizes[event.stream] += event.bytes.byteLength;
        if (event.type === "exit") code = event.command.status.code;
      }
      await writing;
      assert.deepEqual([sizes, code], [{ stdout: MIB, stderr: 5 }, 3]);
    });

    test("bytes that were dropped show as a gap", async () => {
      const command = await sandbox.start("seq 1 100000", { outputCapBytes: 20_000 });
      const { stdout } = await command.wait();
      await using attached = await command.attach();
      let [next, dropped] = [0, 0];
      for await (const event of attached) {
        if (event.type === "gap") [next, dropped] = [event.to, event.to - event.from];
        if (event.type !== "output") continue;
        assert.equal(event.offset, next);
        next += event.bytes.byteLength;
      }
      assert.deepEqual([next, dropped], [stdout.seen, stdout.seen - stdout.kept]);
    });

    test("a foreground call waits for a background child that holds stdout: an attachment does not", async () => {
      const command = await sandbox.start("sleep 600 & echo leader");
      await using attached = await command.attach();
      const kinds: string[] = [];
      for await (const event of attached) kinds.push(event.type);
      assert.deepEqual(kinds.toSorted(), ["exit", "output"]);
    });

    test("an attachment that breaks goes on from the same byte, and repeats no input: kill -9 of the node", async () => {
      // The node's own client in these tests ends with the node.
      const away = Promise.withResolvers<void>();
      let attempts = 0;
      const onAway = () => {
        attempts += 1;
        if (attempts === ATTEMPTS) away.resolve();
      };
      using client = new Client({ url: node.url, token: node.token, patienceMs: READY_MS, onAway });
      const mine = client.sandboxes.use(sandbox.id);
      const line = "stty -echo -opost; echo ready; while read -r x; do echo got-$x; done";
      const terminal = await mine.terminal({ line });
      await using attached = await terminal.attach({ input: true });
      const events = attached[Symbol.asyncIterator]();
      let text = "";
      const until = async (wanted: string) => {
        while (!text.includes(wanted)) {
          const { value } = await events.next();
          if (value?.type === "output") {
            assert.equal(value.offset, text.length);
            text += Buffer.from(value.bytes).toString();
          }
        }
      };
      await until("ready\n");
      await attached.write("1\n");
      await until("got-1\n");
      const port = new URL(node.url).port;
      await node.kill();
      const writing = attached.write("2\n");
      // It stays away for as long as that takes.
      await away.promise;
      await node.start({ port });
      await writing;
      await until("got-2\n");
      assert.equal(text, "ready\ngot-1\ngot-2\n");
      sandbox = node.client.sandboxes.use(sandbox.id);
      await terminal.signal("SIGHUP");
    });

    test("Stream hangs when the sandbox dies: an attachment ends with it, and says so", async () => {
      const doomed = await backend.create(node);
      const command = await doomed.start("echo ready; sleep 600");
      await using attached = await command.attach();
      await shown(attached, "ready");
      const rest = Array.fromAsync(attached).then(
        (events) => events.map((event) => (event.type === "exit" ? event.command.status.cause : event.type)),
        (error: unknown) => [error instanceof DsecError ? error.kind : String(error)],
      );
      await doomed.remove();
      assert.match(String(await rest), /^(sandbox-stopped|NotFound|SandboxLost)$/);
    });

    test("what is wrong with an attachment is told in a typed error, and nothing is left", async () => {
      await assert.rejects(sandbox.command("c-none").attach(), { kind: "NotFound" });
      const other = node.client.sandboxes.use(sandbox.id.replace(/.$/, (last) => (last === "a" ? "b" : "a")));
      await assert.rejects(other.command("c-none").attach(), { kind: "NotFound" });
      for (const size of [
        { rows: 0, cols: 80 },
        { rows: 24, cols: 70_000 },
      ]) {
        await assert.rejects(sandbox.terminal({ size }), { kind: "InvalidArgument" });
      }
      const ended = await sandbox.start("true", { stdin: "pipe" });
      await ended.wait();
      await using attached = await ended.attach({ input: true });
      for await (const event of attached) assert.equal(event.type, "exit");
      await assert.rejects(attached.write("x"));
    });
  });
}

/** Everything that is shown up to a text. */
async function shown(attached: Attachment, text: string): Promise<string> {
  let seen = "";
  const events = attached[Symbol.asyncIterator]();
  while (!seen.includes(text)) {
    const { done, value } = await events.next();
    assert.notEqual(done, true, `the command ended after ${JSON.stringify(seen)}`);
    if (value?.type === "output") seen += Buffer.from(value.bytes).toString();
  }
  return seen;
}

/** Asserts that a stale write is refused: at once, or when the holder's going has reached the node. */
async function released(write: () => ReturnType<Command["write"]>): Promise<void> {
  await assert.rejects(write(), { kind: "FailedPrecondition" });
}
