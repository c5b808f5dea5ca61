import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { type CellNews, type CellRequest, type CellResult, CellResultReader, encodeCellRequest } from "#core/cells.ts";
import type { GuestLink, TaskEnd } from "#core/guest.ts";
import { AGENT_BUILDS, type AgentBuild, forEachBuild, nextNumber, TestAgent } from "./testing.ts";

const BUILD = join(import.meta.dirname, "../../.build");
const MIB = 1024 * 1024;
const UID = 20_000;
const LIMITS = {
  cpuMs: 2_000,
  wallMs: 20_000,
  memoryBytes: 64 * MIB,
  outputBytes: MIB,
  fileBytes: MIB,
  pids: 32,
};

/** Into a user namespace as sandboxes have one, in which every id is its own: the host lets its maps be written by others only. */
const UNSHARE = `before=$(readlink /proc/$$/ns/user)
(
  while [ "$(readlink /proc/$$/ns/user)" = "$before" ]; do :; done
  echo 0 0 65536 > /proc/$$/uid_map
  echo 0 0 65536 > /proc/$$/gid_map
) &
exec unshare --user --mount --propagation private --pid --fork --kill-child sh -c "$@"`;

/** A root of this machine's programs, for an agent that makes its own read-only: nothing of it is seen elsewhere. */
const ENTER = `set -e
until grep -q . /proc/self/gid_map; do :; done
mount -t tmpfs root /mnt
cd /mnt
mkdir build dev old proc tmp usr work var
for link in bin lib lib64 sbin; do [ ! -L /$link ] || cp -d /$link .; done
for folder in bin etc lib lib64 sbin usr; do [ -L /$folder ] || [ ! -d /$folder ] || { mkdir -p $folder; mount --bind /$folder $folder; }; done
mount --bind "$1" build
mkdir dev/mqueue dev/shm
for device in null urandom zero; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount -t proc proc proc
pivot_root . old
umount -l /old
shift
exec "$@"`;

/** Why there can be no cells here; undefined: there can. */
function obstacle(): string | undefined {
  const missing = ["memory", "pids", "unified"].filter((tree) => !existsSync(`/sys/fs/cgroup/${tree}/cgroup.procs`));
  return missing.length === 0
    ? undefined
    : `no cgroup trees ${missing.join(", ")}: the suite of host-vm has cells over v2`;
}

/** An agent with cgroups that cells can be made below. */
class CellAgent implements AsyncDisposable {
  readonly #directories: readonly string[];
  readonly #agent: TestAgent;
  readonly link: GuestLink;

  private constructor(directories: readonly string[], agent: TestAgent, link: GuestLink) {
    this.#directories = directories;
    this.#agent = agent;
    this.link = link;
  }

  static async start(build: AgentBuild): Promise<CellAgent> {
    const name = `dsec-cells-${randomBytes(6).toString("hex")}`;
    const directories = ["memory", "pids", "unified"].map((tree) => `/sys/fs/cgroup/${tree}/${name}`);
    for (const directory of directories) mkdirSync(directory);
    const agent = await TestAgent.start({
      directories,
      wrap: ["sh", "-c", UNSHARE, "sh", ENTER, "sh", BUILD],
      as: AGENT_BUILDS[build].replace(BUILD, "/build"),
      args: ["--cgroups=3", "--cells=3"],
    });
    return new CellAgent(directories, agent, await agent.connect());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.link.close();
    await this.#agent[Symbol.asyncDispose]();
    for (const directory of this.#directories) {
      // Keepers end with their agent, a moment later, and leave their cgroups to whoever removes the sandbox.
      for (let tries = 0; existsSync(directory); tries += 1) {
        try {
          const own = readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isDirectory());
          for (const { name } of own) rmdirSync(join(directory, name));
          rmdirSync(directory);
        } catch (error) {
          if (tries > 1_000) throw error;
          await setTimeout(10);
        }
      }
    }
  }
}

/** One keeper, call by call. */
class TestKeeper {
  readonly ended = Promise.withResolvers<TaskEnd>();
  readonly #number = nextNumber();
  readonly #link: GuestLink;
  readonly #reader = new CellResultReader();
  readonly #news: CellNews[] = [];
  #refusal: unknown;
  #wake = Promise.withResolvers<void>();
  #sent = 0;

  constructor(link: GuestLink) {
    this.#link = link;
  }

  static async start({ link }: CellAgent, calls = 100): Promise<TestKeeper> {
    const keeper = new TestKeeper(link);
    const action = { type: "cell", program: "cold", calls, spaceBytes: 16 * MIB } as const;
    const task = { action, user: String(UID), cwd: "/work", env: {}, stdin: "pipe", timeLimitMs: undefined } as const;
    await link.start(keeper.#number, task, {
      output: (stream, offset, bytes) => {
        link.acknowledge(keeper.#number, stream, offset + bytes.length);
        keeper.#hear(bytes);
      },
      ended: () => undefined,
      end: (end) => {
        keeper.ended.resolve(end);
        keeper.#tell();
      },
    });
    return keeper;
  }

  /** Whatever of a request: what is expected of each of these is what the largest may say. */
  async send(bytes: Uint8Array): Promise<void> {
    this.#reader.expect({ limits: LIMITS, wanted: [] });
    const at = this.#sent;
    this.#sent += bytes.length;
    await this.#link.writeStdin(this.#number, at, bytes);
  }

  stop(): void {
    this.#link.signal(this.#number, 15, "leader");
  }

  /** What it says next. */
  async next(): Promise<CellNews> {
    for (;;) {
      const news = this.#news.shift();
      if (news !== undefined) return news;
      if (this.#refusal !== undefined) throw this.#refusal;
      this.#wake = Promise.withResolvers<void>();
      await this.#wake.promise;
    }
  }

  /** Runs a line of the shell, and waits for the next cell. */
  async run(line: string, more: Partial<CellRequest> = {}): Promise<CellResult> {
    await this.send(Buffer.concat(encodeCellRequest(requestOf(line, more))));
    const news = await this.next();
    assert.equal(news.type, "result");
    assert.equal((await this.next()).type, "ready");
    return news.result;
  }

  async says(line: string): Promise<string> {
    const { stdout, stderr } = await this.run(line);
    return `${stdout}${stderr}`.trim();
  }

  #hear(bytes: Uint8Array): void {
    try {
      this.#news.push(...this.#reader.push(bytes));
    } catch (error) {
      this.#refusal = error;
    }
    this.#tell();
  }

  #tell(): void {
    this.#wake.resolve();
  }
}

function requestOf(line: string, more: Partial<CellRequest> = {}): CellRequest {
  return {
    argv: ["/bin/sh", "-c", line],
    env: { PATH: "/usr/bin:/bin" },
    files: [],
    input: new Uint8Array(),
    wanted: [],
    ...more,
    limits: { ...LIMITS, ...more.limits },
  };
}

const skip = obstacle();

forEachBuild((build) => {
  describe(`cells of the ${build} agent`, { skip }, () => {
    test("calls of one keeper have a user, files and process numbers of their own", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      for (let call = 0; call < 3; call += 1) {
        const line = "id -u; echo $$; ls -A /work /tmp /var/tmp /dev/shm; (true) & wait; echo x > /tmp/x; echo y > y";
        const said = await keeper.says(line);
        assert.equal(said, [UID + call, 2, "/dev/shm:", "", "/tmp:", "", "/var/tmp:", "", "/work:"].join("\n"));
      }
    });

    test("what a call touched of its namespaces is not there for the next one", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      const traces = "cat /proc/net/dev | grep lo: | tr -s ' '; ipcs -u | grep -E 'used|allocated'; ls /dev/mqueue";
      const fresh = await keeper.says(traces);
      // Made and removed again: what is left is the number that the next one would have. The first room has had a call already.
      const make = "ipcmk -M 1 | tee id; ipcrm -m $(grep -o '[0-9]*$' id)";
      await keeper.run(make);
      const made = await keeper.says(make);
      assert.match(made, /id: \d+/);
      assert.equal(await keeper.says("ipcmk -M 1"), made);
      assert.equal(await keeper.says(traces), fresh);
      await keeper.run("bash -c 'exec 3<>/dev/tcp/127.0.0.1/1'");
      assert.equal(await keeper.says(traces), fresh);
    });

    test("what a call leaves running ends with it", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      const { code, clean } = await keeper.run(
        "setsid sleep 1000 & (trap '' TERM; while :; do sleep 1 & done) & exit 5",
        {
          limits: { ...LIMITS, pids: 16 },
        },
      );
      assert.deepEqual([code, clean], [5, true]);
      assert.equal(await keeper.says("set -- /proc/[0-9]*; echo $#"), "2");
    });

    test("limits hold for each call anew, and peaks are each call's own", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      const large = await keeper.run("dd if=/dev/zero of=/dev/null bs=200M count=1");
      assert.deepEqual([large.verdict, large.peakBytes > 60 * MIB], ["memory", true]);
      const small = await keeper.run("echo small");
      assert.deepEqual([small.verdict, small.peakBytes < 20 * MIB], ["ended", true]);
      const busy = await keeper.run("while :; do :; done", { limits: { ...LIMITS, cpuMs: 50 } });
      assert.deepEqual([busy.verdict, busy.cpuMs >= 50, busy.signal], ["cpu", true, 9]);
      const loud = await keeper.run("yes", { limits: { ...LIMITS, outputBytes: 5 } });
      assert.deepEqual([loud.verdict, String(loud.stdout)], ["output", "y\ny\ny"]);
      assert.equal((await keeper.run("echo fine")).verdict, "ended");
    });

    test("the clock counts what a program waits for, but not what it waits for at us", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      const limits = { ...LIMITS, wallMs: 100 };
      assert.equal((await keeper.run("sleep 1000", { limits })).verdict, "wall");
      const input = Buffer.from("all of it\n");
      const request = Buffer.concat(encodeCellRequest(requestOf("cat", { limits, input })));
      await keeper.send(request.subarray(0, -6));
      // Longer than the limit, whoever is slow.
      await setTimeout(300);
      await keeper.send(request.subarray(-6));
      const news = await keeper.next();
      assert.ok(news.type === "result");
      assert.deepEqual([news.result.verdict, String(news.result.stdout)], ["ended", "all of it\n"]);
    });

    test("input that a program leaves is not the next one's, and files come and go", async () => {
      await using agent = await CellAgent.start(build);
      const keeper = await TestKeeper.start(agent);
      await keeper.run("exit 0", { input: Buffer.alloc(3 * MIB, "x") });
      const file = { name: "in/a", mode: 0o640, bytes: Buffer.from("a") };
      const { files, missing } = await keeper.run("cat; cp in/a out; ln -s /etc/passwd link", {
        files: [file],
        wanted: ["out", "none", "link", "in"],
      });
      assert.deepEqual(
        files.map(({ name, bytes }) => [name, String(bytes)]),
        [["out", "a"]],
      );
      assert.deepEqual(missing, ["none", "link", "in"]);
    });

    test("a request that is none, or does not fit, is refused, and ends its keeper with nothing left", async () => {
      await using agent = await CellAgent.start(build);
      const tooLarge = requestOf("true", { files: [{ name: "a", mode: 0o600, bytes: Buffer.alloc(20 * MIB) }] });
      const escapes = requestOf("true", { files: [{ name: "../a", mode: 0o600, bytes: Buffer.alloc(1) }] });
      for (const [bytes, errno] of [
        [Buffer.alloc(72), 22],
        [Buffer.concat(encodeCellRequest(tooLarge)), 28],
        [Buffer.concat(encodeCellRequest(escapes)), 22],
      ] as const) {
        const keeper = await TestKeeper.start(agent);
        void keeper.send(bytes).catch(() => undefined);
        await assert.rejects(keeper.next(), { kind: "SandboxLimit", details: { errno } });
        assert.equal((await keeper.ended.promise).code, 0);
      }
    });

    test("a keeper that is stopped ends, whatever it waits for, and so does one that has served its calls", async () => {
      await using agent = await CellAgent.start(build);
      const request = Buffer.concat(encodeCellRequest(requestOf("sleep 1000")));
      for (const bytes of [0, 10, request.length]) {
        const keeper = await TestKeeper.start(agent);
        if (bytes > 0) await keeper.send(request.subarray(0, bytes));
        keeper.stop();
        assert.equal((await keeper.ended.promise).code, 0);
      }
      const last = await TestKeeper.start(agent, 1);
      await last.send(Buffer.concat(encodeCellRequest(requestOf("echo last"))));
      assert.equal((await last.next()).type, "result");
      assert.equal((await last.ended.promise).code, 0);
    });
  });
});
