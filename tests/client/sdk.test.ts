import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Client, CommandStartError, DsecError, NotFoundError, OutputLostError, type Sandbox } from "#sdk";
import { startNode, type TestNode } from "../support/node.ts";

const BASE = "host-busybox";
const MIB = 1024 * 1024;

async function bytesOf(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(source));
}

// Both carriers of the node API, end to end: what holds for one must hold for the other.
for (const nodeApi of ["memory", "websocket"]) sdkHolds(nodeApi);

function sdkHolds(nodeApi: string): void {
  describe(`the SDK against a real node, node API over ${nodeApi}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let client: Client;
    let sandbox: Sandbox;
    before(async () => {
      node = await startNode({ words: [`--node-api=${nodeApi}`] });
      client = node.client;
      await client.artifacts.build({ name: BASE, suite: BASE });
      sandbox = await client.sandboxes.create({ base: BASE });
    });
    after(async () => {
      await node?.[Symbol.asyncDispose]();
    });

    test("await using removes the sandbox at the end of its block", async () => {
      let id = "";
      {
        await using other = await client.sandboxes.create({ base: BASE, labels: { for: "scope" } });
        id = other.id;
        assert.equal((await other.info()).state, "ready");
        const listed = await Array.fromAsync(client.sandboxes.list({ labels: { for: "scope" } }));
        assert.deepEqual(
          listed.map((view) => view.id),
          [id],
        );
      }
      await assert.rejects(client.sandboxes.info(id), NotFoundError);
      await client.sandboxes.remove(id);
    });

    test("the same key makes one sandbox, at the same time and afterwards", async () => {
      const idempotencyKey = randomBytes(8).toString("hex");
      const create = () => client.sandboxes.create({ base: BASE }, { idempotencyKey });
      const made = [...(await Promise.all([create(), create(), create()])), await create()];
      assert.equal(new Set(made.map((one) => one.id)).size, 1);
      await made[0]?.remove();
    });

    test("a create that is given up leaves no sandbox", async () => {
      for (const delayMs of [0, 1, 2, 5, 10, 20]) {
        const labels = { for: "given-up" };
        const made = await client.sandboxes
          .create({ base: BASE, labels }, { signal: AbortSignal.timeout(delayMs) })
          .catch(() => undefined);
        await made?.remove();
        assert.deepEqual(await Array.fromAsync(client.sandboxes.list({ labels })), []);
      }
    });

    test("run gives status, stdout and stderr apart, for a line and for a list", async () => {
      const result = await sandbox.run("echo out; echo err >&2; exit 3");
      assert.deepEqual(
        [result.stdoutText, result.stderrText, result.status.code, result.ok],
        ["out\n", "err\n", 3, false],
      );
      const list = await sandbox.run(["echo", "-n", "two words", "$HOME"]);
      assert.deepEqual([list.stdoutText, list.ok, list.truncated], ["two words $HOME", true, false]);
    });

    test("arguments, input and output are bytes", async () => {
      const odd = Buffer.from([0xff, 0xfe, 0x20, 0x0a]);
      assert.deepEqual(Buffer.from((await sandbox.run(["printf", "%s", odd])).stdout), odd);
      const input = randomBytes(3 * MIB);
      assert.ok(input.equals((await sandbox.run(["cat"], { stdin: input })).stdout));
      assert.equal((await sandbox.run(["cat"], { stdin: "text" })).stdoutText, "text");
      assert.equal((await sandbox.run(["cat"])).stdoutText, "", "without input a command reads its end at once");
    });

    test("environment, directory and user reach the command", async () => {
      const result = await sandbox.run("echo $A; pwd; id -u", { env: { A: "a b" }, cwd: "/tmp", user: "nobody" });
      assert.match(result.stdoutText, /^a b\n\/tmp\n[1-9]\d*\n$/);
    });

    test("a signal is an end with a signal and no code", async () => {
      const { status } = await sandbox.run("kill -TERM $$");
      assert.deepEqual([status.cause, status.code, status.signal], ["signaled", undefined, "SIGTERM"]);
    });

    test("a time limit ends the command and keeps what it wrote", async () => {
      const { status, stdoutText } = await sandbox.run("echo partly; sleep 60", { timeLimitMs: 300 });
      assert.deepEqual([status.cause, stdoutText], ["timeout", "partly\n"]);
    });

    test("a program that does not exist, or cannot be run, throws its own class", async () => {
      await assert.rejects(sandbox.run(["no-such-program"]), (error) => {
        return error instanceof CommandStartError && error.kind === "CommandNotFound";
      });
      await sandbox.files.write("/tmp/plain", "text", { mode: 0o644 });
      await assert.rejects(sandbox.run(["/tmp/plain"]), { name: "CommandStartError", kind: "CommandNotExecutable" });
    });

    test("bad requests name what is wrong", async () => {
      const cases: [Parameters<Client["sandboxes"]["create"]>[0], string, RegExp][] = [
        [{ base: "no-such-base" }, "NotFound", /no-such-base/],
        [{ base: BASE, resources: { memoryMiB: 0 } }, "InvalidArgument", /memoryMiB/],
        [{ base: BASE, resources: { memoryMiB: -5 } }, "InvalidArgument", /memoryMiB/],
        [{ base: BASE, resources: { memoryMiB: Number.NaN } }, "InvalidArgument", /memoryMiB/],
        [{ base: BASE, idleTimeoutMs: 0 }, "InvalidArgument", /idleTimeoutMs/],
      ];
      for (const [request, kind, message] of cases) {
        await assert.rejects(client.sandboxes.create(request), (error) => {
          assert.ok(error instanceof DsecError);
          assert.equal(error.kind, kind);
          assert.match(error.message, message);
          return true;
        });
      }
      await assert.rejects(sandbox.run("true", { timeLimitMs: -1 }), { kind: "InvalidArgument" });
      await assert.rejects(sandbox.run("true", { user: "nobody-knows" }), { kind: "InvalidArgument" });
    });

    test("a wrong token is refused", async () => {
      using stranger = new Client({ url: node.url, token: "dsec_wrong" });
      await assert.rejects(stranger.whoami(), { kind: "Unauthenticated" });
      assert.equal((await client.whoami()).project, "default");
    });

    test("streams come while the command runs, stdin goes in pieces, signals arrive", async () => {
      const command = await sandbox.start(["cat"], { stdin: "pipe" });
      const output = command.stdout();
      await command.write("one");
      assert.equal(Buffer.from((await output.next()).value ?? []).toString(), "one");
      await command.write("two");
      assert.equal(Buffer.from((await output.next()).value ?? []).toString(), "two");
      await command.closeStdin();
      assert.equal((await output.next()).done, true);
      assert.equal((await command.wait()).status.code, 0);
      const sleeper = await sandbox.start(["sleep", "60"]);
      await sleeper.signal("SIGKILL");
      assert.equal((await sleeper.wait()).status.signal, "SIGKILL");
      await sleeper.signal("SIGKILL");
    });

    test("a command is found again by its id, with its output from the first byte", async () => {
      const { id } = await sandbox.start("echo earlier; sleep 0.2; echo later");
      const again = client.sandboxes.use(sandbox.id).command(id);
      assert.equal((await bytesOf(again.stdout())).toString(), "earlier\nlater\n");
      assert.equal((await again.result()).stdoutText, "earlier\nlater\n");
      assert.ok((await sandbox.commands()).some((view) => view.id === id));
    });

    test("many megabytes come through whole, at the reader's pace", async () => {
      const sum = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
      const line = "head -c 50000000 /dev/urandom >/tmp/big; sha256sum /tmp/big >&2; cat /tmp/big";
      const command = await sandbox.start(line);
      const [stdout, stderr] = await Promise.all([bytesOf(command.stdout({ hold: true })), bytesOf(command.stderr())]);
      assert.equal(stdout.length, 50_000_000);
      assert.equal(sum(stdout), stderr.toString().split(" ")[0]);
    });

    test("dropped bytes are an error for a plain reader, and a gap for one who looks", async () => {
      const command = await sandbox.start("head -c 300000 /dev/zero", { outputCapBytes: 100_000 });
      const view = await command.wait();
      assert.deepEqual([view.stdout.seen, view.stdout.truncated], [300_000, true]);
      await assert.rejects(bytesOf(command.stdout()), OutputLostError);
      const chunks = await Array.fromAsync(command.output("stdout"));
      const last = chunks.at(-1);
      assert.equal((last?.offset ?? 0) + (last?.bytes.byteLength ?? 0), 300_000);
      assert.equal((await command.result()).truncated, true);
    });

    test("giving up a wait leaves the command running", async () => {
      const command = await sandbox.start(["sleep", "60"]);
      await assert.rejects(command.wait({ timeoutMs: 100 }), { name: "TimeoutError" });
      await assert.rejects(command.wait({ signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
      assert.equal((await command.info()).status, undefined);
      await command.signal("SIGTERM");
      assert.equal((await command.wait()).status.signal, "SIGTERM");
    });

    test("files go both ways as streams, with odd names, modes and links", async () => {
      const { files } = sandbox;
      const name = Buffer.concat([Buffer.from("/tmp/d/"), Buffer.from([0xff, 0x0a])]);
      await files.mkdir("/tmp/d");
      const content = randomBytes(5 * MIB);
      const pieces = (async function* () {
        for (let at = 0; at < content.length; at += 100_000) yield content.subarray(at, at + 100_000);
      })();
      const written = await files.write(name, pieces, { mode: 0o640 });
      assert.equal(written.sha256, createHash("sha256").update(content).digest("hex"));
      assert.ok(content.equals(await files.read(name)));
      assert.ok(content.subarray(10, 20).equals(await files.read(name, { offset: 10, length: 10 })));
      assert.ok(content.equals(await bytesOf(files.stream(name))));
      assert.deepEqual([(await files.stat(name)).mode & 0o777, (await files.stat(name)).size], [0o640, content.length]);
      await sandbox.run(["ln", "-s", "/etc/passwd", "/tmp/d/link"]);
      const listed = await files.list("/tmp/d");
      assert.deepEqual(listed.map((entry) => entry.type).sort(), ["file", "symlink"]);
      assert.ok(listed.some((entry) => typeof entry.name !== "string"));
      await files.remove("/tmp/d", { recursive: true });
      await assert.rejects(files.list("/tmp/d"), NotFoundError);
      await assert.rejects(files.read("/tmp"), { kind: "InvalidArgument" });
    });

    test("an upload that breaks off leaves the old file", async () => {
      await sandbox.files.write("/tmp/kept", "old");
      const broken = (async function* () {
        yield Buffer.from("new");
        throw new Error("the source failed");
      })();
      await assert.rejects(sandbox.files.write("/tmp/kept", broken), /the source failed/);
      assert.equal(await sandbox.files.readText("/tmp/kept"), "old");
    });

    test("the catalogue lists, shows and forgets what was imported", async () => {
      const empty = Buffer.alloc(1024);
      const made = await client.artifacts.import(empty, { name: "nothing", kind: "workspace" });
      assert.equal(made.kind, "workspace");
      assert.equal((await client.artifacts.info("nothing")).digest, made.digest);
      assert.ok((await client.artifacts.list()).some((artifact) => artifact.name === "nothing"));
      await client.artifacts.remove("nothing");
      await assert.rejects(client.artifacts.info("nothing"), NotFoundError);
      await assert.rejects(client.artifacts.import(Buffer.from("no tar"), { name: "bad", kind: "base" }), {
        kind: "InvalidArgument",
      });
    });

    test("the node counts what exists against what should", async () => {
      const [first] = await client.nodes.list();
      assert.equal(first?.state, "ready");
      for (const count of await client.nodes.resources(first?.edge ?? "")) {
        assert.deepEqual([count.class, count.surplus], [count.class, []]);
      }
    });
  });
}
