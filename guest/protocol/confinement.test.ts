import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, openSync, readFileSync, readSync } from "node:fs";
import { mkdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import type { GuestLink, TaskEnd } from "#core/guest.ts";
import { EXEC_DEFAULTS, exec, forEachBuild, nextNumber, Recorder, run, shell, TestAgent } from "./testing.ts";

/** The 14 capabilities that containers of the field leave to root. */
const KEPT = 0xa80425fbn;

async function spawnerOf(agent: TestAgent): Promise<number> {
  for (;;) {
    const pid = agent.process.pid;
    for (const child of (await readFile(`/proc/${pid}/task/${pid}/children`, "utf8")).trim().split(" ")) {
      const name = await readFile(`/proc/${child}/comm`, "utf8").catch(() => "");
      if (name.trim() === "dsec-spawner") return Number(child);
    }
    await setTimeout(5);
  }
}

/** Whether a process has the text in memory that it can write. */
function remembers(pid: number, text: string): boolean {
  const memory = openSync(`/proc/${pid}/mem`, "r");
  try {
    return readFileSync(`/proc/${pid}/maps`, "utf8")
      .split("\n")
      .flatMap((region) => (/^(\w+)-(\w+) rw/.exec(region) ?? []).slice(1).map((at) => Number(`0x${at}`)))
      .some((from, at, bounds) => {
        const size = at % 2 === 0 ? (bounds[at + 1] ?? from) - from : 0;
        // What sanitizers set aside is larger than any memory.
        if (size === 0 || size > 2 ** 26) return false;
        const bytes = Buffer.alloc(size);
        return bytes.subarray(0, readSync(memory, bytes, 0, size, from)).includes(text);
      });
  } finally {
    closeSync(memory);
  }
}

/** Empty as soon as the kernel has let go of the last of its processes. */
async function removeGroup(group: string): Promise<void> {
  for (let tries = 0; existsSync(group); tries++) {
    try {
      await rmdir(group);
    } catch (error) {
      if (tries > 1000) throw error;
      await setTimeout(5);
    }
  }
}

async function line(link: GuestLink, text: string): Promise<string> {
  const { stdout, stderr } = await shell(link, text);
  return `${stdout}${stderr}`.trim();
}

/** Stops the next child of the spawner on its way to being the command; undefined when it was too fast. */
async function stopNewborn(agent: TestAgent, spawner: number): Promise<number | undefined> {
  const { pid } = agent.process;
  let child: number | undefined;
  for (const end = performance.now() + 100; child === undefined && performance.now() < end; ) {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
    child = children.find((candidate) => candidate !== spawner && candidate !== 0);
  }
  try {
    if (child === undefined || !process.kill(child, "SIGSTOP")) return undefined;
  } catch {
    // It has ended already.
    return undefined;
  }
  for (;;) {
    const [, name, state] = /\((.*)\) (.)/.exec(await readFile(`/proc/${child}/stat`, "utf8").catch(() => "")) ?? [];
    if (state === "T") return name === "dsec-spawner" ? child : undefined;
    if (state === undefined || state === "Z") return undefined;
  }
}

test("a start that root of the sandbox stops half-way is ended, and others go on", async () => {
  await using agent = await TestAgent.start({ build: "static" });
  const link = await agent.connect();
  const spawner = await spawnerOf(agent);
  let child: number | undefined;
  let stopped: Promise<TaskEnd> | undefined;
  while (stopped === undefined) {
    const number = nextNumber();
    const recorder = new Recorder(() => undefined);
    const started = link.start(number, { ...EXEC_DEFAULTS, action: exec("/bin/true") }, recorder);
    started.catch(() => undefined);
    child = await stopNewborn(agent, spawner);
    if (child !== undefined) stopped = started.then(() => recorder.status.promise);
    else link.forget(number);
    await setTimeout(1);
  }
  assert.equal(await line(link, "echo fine"), "fine");
  // Begun again when it had not even said its pid.
  const end = await stopped;
  assert.ok(end.signal === "SIGKILL" || end.code === 0, JSON.stringify(end));
  // An init would take it along.
  if (child !== undefined && existsSync(`/proc/${child}`)) process.kill(child, "SIGKILL");
  link.close();
});

forEachBuild((build) => {
  describe(`confinement by the ${build} agent`, () => {
    test("commands have the capabilities of a container and a filter on system calls", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const status = await line(link, "cat /proc/self/status");
      for (const set of ["CapPrm", "CapEff", "CapBnd"]) {
        assert.equal(BigInt(`0x${new RegExp(`${set}:\\s*(\\w+)`).exec(status)?.[1]}`), KEPT, set);
      }
      for (const set of ["CapInh", "CapAmb"]) {
        assert.equal(BigInt(`0x${new RegExp(`${set}:\\s*(\\w+)`).exec(status)?.[1]}`), 0n, set);
      }
      assert.match(status, /Seccomp:\s*2/);
      assert.match(status, /NoNewPrivs:\s*0/);
      assert.match(await line(link, "grep -c . /proc/self/oom_score_adj; cat /proc/self/oom_score_adj"), /\n0$/);
      const user = (await run(link, exec("cat", "/proc/self/status"), { user: "nobody" })).stdout.toString();
      assert.match(user, /CapEff:\s*0+\n/);
      link.close();
    });

    test("a command begins with nothing of the agent: descriptors, signals, session", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      // 3 is the listing's own look at the directory.
      assert.equal((await run(link, exec("ls", "/proc/self/fd"))).stdout.toString(), "0\n1\n2\n3\n");
      const status = await line(link, "cat /proc/self/status");
      for (const set of ["SigBlk", "SigIgn", "SigCgt"]) assert.match(status, new RegExp(`${set}:\\s*0+\n`), set);
      const ids = "read -r pid name state parent group session rest </proc/$$/stat && echo $pid $group $session";
      assert.match(await line(link, ids), /^(\d+) \1 \1$/);
      assert.equal(await line(link, "umask"), "0022");
      link.close();
    });

    test("denied calls fail with EPERM, unknown ones with ENOSYS, and the machine goes on", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const python = `
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno(), "ok") if libc.syscall(*a) < 0 else "ok"
x = os.uname().machine == "x86_64"
print("mount", call(165 if x else 40, b"none", b"/nowhere", b"tmpfs", 0, 0))
print("unshare", call(272 if x else 97, 0x10000000))
print("unshare-files", call(272 if x else 97, 0x400))
print("setns", call(308 if x else 268, 0, 0))
print("keyctl", call(250 if x else 219, 0, 0))
print("bpf", call(321 if x else 280, 0, 0, 0))
print("io_uring", call(425, 1, 0))
print("clone3", call(435, 0, 0))
print("clone-ns", call(56 if x else 220, 0x10000011, 0, 0, 0, 0))
print("future", call(600))
print("x32", call(0x40000000 + 39) if x else "ENOSYS")
print("personality", call(135 if x else 92, 0xffffffff))
print("personality-odd", call(135 if x else 92, 0x0400000))
print("tiocsti", call(16 if x else 29, 0, 0x5412, b"x"))
print("vsock", call(41 if x else 198, 40, 1, 0))
print("alg", call(41 if x else 198, 38, 5, 0))
print("inet", call(41 if x else 198, 2, 1, 0))
print("getpid", call(39 if x else 172))
`;
      const result = await run(link, exec("python3", "-c", python));
      assert.equal(
        `${result.stdout}${result.stderr}`,
        "mount EPERM\nunshare EPERM\nunshare-files ok\nsetns EPERM\nkeyctl EPERM\nbpf EPERM\nio_uring EPERM\nclone3 ENOSYS\n" +
          "clone-ns EPERM\nfuture ENOSYS\nx32 ENOSYS\npersonality ok\npersonality-odd EPERM\ntiocsti EPERM\nvsock EPERM\nalg EPERM\n" +
          "inet ok\ngetpid ok\n",
      );
      link.close();
    });

    test("resource limits of the sandbox hold in its commands", async () => {
      await using agent = await TestAgent.start({
        build,
        args: [
          "--rlimit=nofile:64:128",
          "--rlimit=core:0:0",
          "--rlimit=cpu:100:unlimited",
          "--rlimit=stack:1048576:unlimited",
        ],
      });
      const link = await agent.connect();
      assert.equal(await line(link, "ulimit -n; ulimit -Hn; ulimit -c; ulimit -t; ulimit -s"), "64\n128\n0\n100\n1024");
      link.close();
    });

    test("commands start on the processors that were chosen, and may take others", async () => {
      await using agent = await TestAgent.start({ build, args: ["--processors=0"] });
      const link = await agent.connect();
      const allowed = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p'";
      assert.equal(await line(link, `${allowed} /proc/self/status`), "0");
      const all = await line(link, `taskset -c 0-63 ${allowed} /proc/self/status`);
      assert.equal(all, await line(link, `${allowed} /proc/${agent.process.pid}/status`));
      link.close();
    });

    test("sysinfo is answered by the agent, for commands of a spawner that is gone, too", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const totals = async () => (await line(link, "busybox free -b | sed -n 's/^Mem: *//p'")).split(" ")[0];
      const [, kib] = /^MemTotal: +(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8")) ?? [];
      assert.equal(Number(await totals()), Number(kib) * 1024);
      process.kill(await spawnerOf(agent), "SIGKILL");
      assert.equal(Number(await totals()), Number(kib) * 1024);
      link.close();
    });

    test("the spawner forgets what it started: a later session's user may look into what is made of it", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const secret = randomBytes(16).toString("hex");
      const [number, recorder] = [nextNumber(), new Recorder(() => undefined)];
      const spec = {
        ...EXEC_DEFAULTS,
        env: { PADDING: "x".repeat(8_000), SECRET: secret },
        action: exec("sleep", "60"),
      };
      const { pid } = await link.start(number, spec, recorder);
      // The next start waits for the spawner to be done with this one.
      await line(link, "true");
      assert.equal(remembers(pid, secret), true);
      assert.equal(remembers(await spawnerOf(agent), secret), false);
      link.signal(number, 9, "group");
      await recorder.status.promise;
      link.close();
    });

    test("processors that the machine has not keep no command from starting", async () => {
      await using agent = await TestAgent.start({ build, args: ["--processors=1000-1023"] });
      const link = await agent.connect();
      assert.equal(await line(link, "echo started"), "started");
      link.close();
    });

    test("arguments that are wrong end the agent with a usage line", async () => {
      for (const args of [
        ["--rlimit=nofile:5"],
        ["--rlimit=none:1:1"],
        ["--rlimit=nofile:9:8"],
        ["--cgroups=99"],
        ["--cgroups="],
        ["--apparmor="],
        [`--apparmor=${"x".repeat(65)}`],
        ["--processors="],
        ["--processors=1-0"],
        ["--processors=0,"],
        ["--processors=1024"],
        ["--processors=0-1x"],
        ["x"],
      ]) {
        await using agent = await TestAgent.start({ build, args });
        const code = agent.process.exitCode ?? (await new Promise((resolve) => agent.process.once("exit", resolve)));
        assert.equal(code, 64, args.join(" "));
      }
    });

    test("commands are born in the sandbox's cgroups, the agent stays outside", async (t) => {
      const root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].find((path) => existsSync(join(path, "cgroup.procs")));
      if (root === undefined) return t.skip("no cgroup v2 hierarchy on this host");
      const group = join(root, `dsec-agent-test-${process.pid}-${build}`);
      await mkdir(group);
      try {
        await using agent = await TestAgent.start({
          build,
          args: ["--cgroups=1"],
          open: [join(group, "cgroup.procs")],
        });
        const link = await agent.connect();
        assert.match(await line(link, "grep ^0:: /proc/self/cgroup"), /^0::\/$/);
        const spawner = await spawnerOf(agent);
        assert.deepEqual((await readFile(join(group, "cgroup.procs"), "utf8")).trim(), String(spawner));
        process.kill(spawner, "SIGKILL");
        assert.match(await line(link, "grep ^0:: /proc/self/cgroup"), /^0::\/$/);
        assert.deepEqual((await readFile(join(group, "cgroup.procs"), "utf8")).trim(), String(await spawnerOf(agent)));
        link.close();
      } finally {
        await removeGroup(group);
      }
    });

    for (const [what, options, code] of [
      ["cgroup", { args: ["--cgroups=1"], open: ["/dev/full"] }, "ENOSPC"],
      ["AppArmor profile", { args: ["--apparmor=dsec-no-such-profile"] }, "ENOENT"],
    ] as const) {
      test(`a sandbox whose ${what} cannot be entered runs nothing`, async () => {
        await using agent = await TestAgent.start({ build, ...options });
        const link = await agent.connect();
        await assert.rejects(shell(link, "true"), (error: unknown) => {
          assert.ok(error instanceof Error && "details" in error);
          assert.deepEqual(error.details, { stage: "confine", code });
          return true;
        });
        await link.ping(5000);
        link.close();
      });
    }

    test("a spawner that is killed or stopped is replaced, and no start is lost", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      for (const signal of ["SIGKILL", "SIGSTOP", "SIGTERM", "SIGKILL"] as const) {
        const before = await spawnerOf(agent);
        const runs = Array.from({ length: 40 }, (_, index) => shell(link, `exit ${index}`));
        process.kill(before, signal);
        const ends = await Promise.all(runs);
        assert.deepEqual(
          ends.map((result) => result.end.code),
          ends.map((_, index) => index),
        );
        assert.notEqual(await spawnerOf(agent), before);
      }
      link.close();
    });

    test("a task started before the spawner died goes on", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const number = nextNumber();
      const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
      await link.start(number, { ...EXEC_DEFAULTS, stdin: "pipe", action: exec("cat") }, recorder);
      process.kill(await spawnerOf(agent), "SIGKILL");
      await shell(link, "true");
      await link.writeStdin(number, 0, Buffer.from("still here"));
      link.closeStdin(number);
      assert.equal((await recorder.status.promise).code, 0);
      assert.equal(recorder.text("stdout"), "still here");
      link.close();
    });

    test("a limit on processes is SandboxLimit, and the sandbox is usable again after", async (t) => {
      const root = "/sys/fs/cgroup/pids";
      if (!existsSync(join(root, "cgroup.procs"))) return t.skip("no pids controller of cgroup v1 on this host");
      const group = join(root, `dsec-agent-test-${process.pid}-${build}`);
      await mkdir(group);
      try {
        await writeFile(join(group, "pids.max"), "8");
        await using agent = await TestAgent.start({
          build,
          args: ["--cgroups=1"],
          open: [join(group, "cgroup.procs")],
        });
        const link = await agent.connect();
        const cat = nextNumber();
        const recorder = new Recorder((stream, offset) => link.acknowledge(cat, stream, offset));
        await link.start(cat, { ...EXEC_DEFAULTS, stdin: "pipe", action: exec("cat") }, recorder);
        const sleepers: number[] = [];
        await assert.rejects(
          async () => {
            for (let count = 0; count < 20; count++) {
              const number = nextNumber();
              await link.start(number, { ...EXEC_DEFAULTS, action: exec("sleep", "60") }, new Recorder(() => {}));
              sleepers.push(number);
            }
          },
          { kind: "SandboxLimit" },
        );
        // The spawner and the first task count too.
        assert.equal(sleepers.length, 6);
        await link.ping(5000);
        await link.writeStdin(cat, 0, Buffer.from("others go on"));
        link.closeStdin(cat);
        assert.equal((await recorder.status.promise).code, 0);
        assert.equal(recorder.text("stdout"), "others go on");
        assert.equal((await run(link, exec("true"))).end.code, 0);
        for (const number of sleepers) link.forget(number);
        link.close();
      } finally {
        await removeGroup(group);
      }
    });
  });
});
