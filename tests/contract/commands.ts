import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Client, type Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

/** Commands live by id and end in exactly one observed way. */
export function commandsContract(backend: ContractBackend): void {
  describe(`commands in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());

    test("a background command without a pid or id: both are there at the start", async () => {
      const command = await sandbox.start(["sleep", "600"]);
      assert.ok(command.id.length > 0);
      assert.ok((command.pid ?? 0) > 1);
      await command.signal("SIGTERM");
      const { status } = await command.wait();
      assert.deepEqual([status.cause, status.signal, status.code], ["signaled", "SIGTERM", undefined]);
    });

    test("exit reported as -1, 0 or 9 when a signal killed it: any signal, by name or number, is told by its name", async () => {
      const told = {
        SIGTERM: "SIGTERM",
        HUP: "SIGHUP",
        SIGUSR2: "SIGUSR2",
        9: "SIGKILL",
        3: "SIGQUIT",
        SIGRTMIN: "SIGRTMIN+0",
        "SIGRTMIN+7": "SIGRTMIN+7",
        "RTMAX-2": "SIGRTMIN+28",
        64: "SIGRTMIN+30",
      };
      for (const [given, name] of Object.entries(told)) {
        const command = await sandbox.start(["sleep", "600"]);
        await command.signal(/^\d/.test(given) ? Number(given) : given);
        const { status } = await command.wait();
        assert.deepEqual([status.cause, status.signal, status.code], ["signaled", name, undefined], given);
      }
      const command = await sandbox.start(["sleep", "600"]);
      await refused(command.signal("SIGNOTHING"), "InvalidArgument");
      await refused(command.signal(65), "InvalidArgument");
      await command.signal("SIGKILL");
      await command.wait();
      await command.signal("SIGKILL");
    });

    test("a signal goes to every process of the group, and one that is caught ends nothing", async () => {
      // A shell runs a trap when the program in front has ended: one that began after the signal must end by itself.
      const child = "(trap 'echo child' USR1; echo ready; while :; do sleep 1; done)";
      const command = await sandbox.start(`trap 'echo leader' USR1; ${child} & while :; do wait; done`);
      let text = "";
      const output = command.stdout();
      const readTo = async (...words: string[]) => {
        while (!words.every((word) => text.includes(word))) text += String((await output.next()).value);
      };
      await readTo("ready");
      await command.signal("SIGUSR1");
      await readTo("leader", "child");
      await command.signal("SIGKILL");
      assert.equal((await command.wait()).status.signal, "SIGKILL");
      assert.equal((await output.next()).done, true, "nobody is left to write");
    });

    test("time limit not enforced: the whole group is killed, the cause is timeout, the partial output is there", async () => {
      const result = await sandbox.run("echo before; sleep 600 & sleep 600", { timeLimitMs: 2_000 });
      assert.deepEqual(
        [result.status.cause, result.status.code, result.stdoutText],
        ["timeout", undefined, "before\n"],
      );
      assert.equal((await sandbox.run("ps | grep -c '[s]leep 600'")).stdoutText.trim(), "0");
    });

    test("heavy profile scripts slow every command: none is read, by a program, a line or a session", async () => {
      const own = await backend.create(node);
      const files = [
        "/etc/profile",
        "/etc/bash.bashrc",
        "/root/.profile",
        "/root/.bashrc",
        "/root/.bash_profile",
        "/tmp/env",
      ];
      await own.run("mkdir -p /root /etc");
      for (const path of files) await own.files.write(path, "touch /tmp/was-read\n");
      const env = { HOME: "/root", ENV: "/tmp/env", BASH_ENV: "/tmp/env" };
      await own.run("true", { env });
      await own.run(["/bin/sh", "-c", "true"], { env });
      await using session = await own.session({ env });
      await session.run("true");
      assert.notEqual((await own.run("ls /tmp/was-read")).status.code, 0);
    });

    test("an end has what it took: wall and processor time, and the most memory", async () => {
      const { status } = await sandbox.run("dd if=/dev/zero of=/dev/null bs=24M count=20 2>/dev/null; exit 7");
      assert.deepEqual([status.cause, status.code, status.signal], ["exited", 7, undefined]);
      assert.ok(status.maxRssKiB > 20_000, `${status.maxRssKiB} KiB`);
      assert.ok(status.cpuMs > 0 && status.wallMs > 0);
    });

    test("a foreground call waits for a background child that holds stdout: the leader's end is enough", async () => {
      const command = await sandbox.start("(sleep 600; echo never) & echo early");
      const result = await command.result();
      assert.deepEqual([result.stdoutText, result.status.code], ["early\n", 0]);
      assert.equal((await command.info()).stdout.ended, false);
    });

    test("waiting for the pipes is a choice: the end comes when nobody holds them", async () => {
      const line = "mkfifo /tmp/gate; (read x </tmp/gate; echo late; echo worse >&2) & echo early";
      const command = await sandbox.start(line, { waitFor: "pipes" });
      const waiting = command.result();
      const output = command.stdout();
      assert.equal(String((await output.next()).value), "early\n");
      let info = await command.info();
      while (info.status === undefined) info = await command.info();
      const asked = await fetchCommand(node, sandbox.id, command.id, 50);
      assert.deepEqual([asked.status?.code, asked.stdout.ended], [0, false], "the leader's end shows before");
      await sandbox.run("echo go >/tmp/gate");
      const result = await waiting;
      assert.deepEqual([result.stdoutText, result.stderrText, result.status.code], ["early\nlate\n", "worse\n", 0]);
      assert.equal((await sandbox.run("(sleep 0.1; echo x) &", { waitFor: "pipes" })).stdoutText, "x\n");
    });

    test("client retry starts the job twice: one key, one command, at once, later, and after a crash of the node", async () => {
      await using own = await backend.startNode();
      const { id } = await backend.create(own);
      const key = randomUUID();
      const start = () => own.client.sandboxes.use(id).start("echo x >>/tmp/marks; sleep 600", { idempotencyKey: key });
      const commands = await Promise.all(Array.from({ length: 8 }, start));
      assert.equal(new Set(commands.map((command) => command.id)).size, 1);
      await own.kill();
      await own.start();
      assert.equal((await start()).id, commands[0]?.id);
      const again = own.client.sandboxes.use(id);
      assert.equal((await again.run("cat /tmp/marks")).stdoutText, "x\n");
      await refused(again.start("something else", { idempotencyKey: key }), "AlreadyExists");
    });

    test("a command that is left lives by its id, and anybody takes it up from anywhere", async () => {
      const line = "echo one; read x; echo two; exit 3";
      const first = new Client({ url: node.url, token: node.token });
      const { id } = await first.sandboxes.use(sandbox.id).start(line, { stdin: "pipe" });
      first.close();
      using second = new Client({ url: node.url, token: node.token });
      const command = second.sandboxes.use(sandbox.id).command(id);
      await command.pipe("go\n");
      const result = await command.result();
      assert.deepEqual([result.stdoutText, result.status.code], ["one\ntwo\n", 3]);
    });

    test("commands are listed in pages, and each shows how it stands", async () => {
      const own = await backend.create(node);
      for (let index = 0; index < 7; index++) await own.run(["true", String(index)]);
      const { id } = await own.start(["sleep", "600"]);
      const all = await own.commands();
      assert.deepEqual(
        all.map(({ argv, status }) => [argv[0], status?.code]),
        [...Array.from({ length: 7 }, () => ["true", 0]), ["sleep", undefined]],
      );
      const [newest] = await own.commands({ newestFirst: true, limit: 1 });
      assert.equal(newest?.id, id);
      assert.deepEqual(
        (await own.commands({ limit: 3 })).map(({ argv }) => argv[1]),
        ["0", "1", "2"],
      );
      await own.remove();
    });

    test("500 commands at once in one sandbox all run, and each has its own output", async () => {
      const own = await backend.create(node, { resources: { cpus: 2, memoryMiB: 1024, pids: 1_500 } });
      const started = await Promise.all(
        Array.from({ length: 500 }, (_, index) =>
          own.start(["sh", "-c", `read x; echo "$x ${index}"`], { stdin: "pipe" }),
        ),
      );
      assert.equal((await own.info()).runningCommands, 500);
      await Promise.all(started.map((command, index) => command.pipe(`mine ${index * 7}\n`)));
      const results = await Promise.all(started.map((command) => command.result()));
      for (const [index, { stdoutText, ok }] of results.entries()) {
        assert.deepEqual([stdoutText, ok], [`mine ${index * 7} ${index}\n`, true]);
      }
      await own.remove();
    });
  });
}

async function fetchCommand(node: TestNode, sandbox: string, command: string, waitMs: number) {
  const reply = await fetch(`${node.url}/v1/sandboxes/${sandbox}/commands/${command}?waitMs=${waitMs}`, {
    headers: { authorization: `Bearer ${node.token}` },
  });
  return (await reply.json()) as Awaited<ReturnType<ReturnType<Sandbox["command"]>["info"]>>;
}
