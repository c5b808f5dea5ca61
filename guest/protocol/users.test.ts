import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { GuestLink } from "#core/guest.ts";
import { AGENT_BUILDS, buildAgents, exec, run, TestAgent } from "./testing.ts";

/** A root directory with a shell and user database of the test's own; the agent runs in it as pid 1 of a pid namespace. */
class Root implements AsyncDisposable {
  readonly path: string;
  #agent: TestAgent | undefined;

  constructor(path: string) {
    this.path = path;
  }

  static async make(): Promise<Root> {
    const path = await mkdtemp(join(tmpdir(), "dsec-root-"));
    for (const name of ["bin", "etc", "dev", "proc", "tmp", "home/ann"])
      await mkdir(join(path, name), { recursive: true });
    await chmod(path, 0o755);
    await copyFile("/bin/busybox", join(path, "bin/busybox"));
    for (const name of [
      "sh",
      "id",
      "echo",
      "env",
      "cat",
      "sleep",
      "ps",
      "kill",
      "mount",
      "true",
      "mkfifo",
      "unshare",
    ]) {
      await symlink("busybox", join(path, "bin", name));
    }
    await copyFile(AGENT_BUILDS.static, join(path, "agent"));
    await chmod(join(path, "agent"), 0o711);
    return new Root(path);
  }

  passwd(text: string | Buffer): Promise<void> {
    return writeFile(join(this.path, "etc/passwd"), text);
  }

  group(text: string | Buffer): Promise<void> {
    return writeFile(join(this.path, "etc/group"), text);
  }

  async connect(): Promise<GuestLink> {
    const wrap = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", `--root=${this.path}`];
    this.#agent ??= await TestAgent.start({ wrap, as: "/agent" });
    return this.#agent.connect();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent?.[Symbol.asyncDispose]();
    await rm(this.path, { recursive: true, force: true });
  }
}

async function whoIs(link: GuestLink, user: string): Promise<string> {
  const result = await run(link, exec("/bin/sh", "-c", "id -u; id -g; id -G; echo $USER $LOGNAME $HOME"), { user });
  return result.stdout.toString().trim().replaceAll("\n", " | ");
}

describe("users of a sandbox", () => {
  let root: Root;
  let link: GuestLink;

  before(async () => {
    buildAgents();
    root = await Root.make();
    await root.passwd(
      "root:x:0:0::/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\n7:x:70:70::/seven:\nbob:x:12:13::relative:\n",
    );
    await root.group("root:x:0:\nann:x:1001:\nwheel:x:10:root,ann\ndev:x:20:bobby,ann,x\nnobody:x:30:an,annn\n");
    link = await root.connect();
  });

  after(async () => {
    link.close();
    await root[Symbol.asyncDispose]();
  });

  test("the agent is pid 1, and its commands see nothing of it", async () => {
    assert.equal(link.hello.pid, 1);
    const { end } = await run(
      link,
      exec("/bin/sh", "-c", "cat /proc/1/environ >/dev/null 2>&1 && kill -9 1; kill -TERM 1; kill -INT 1; true"),
    );
    assert.equal(end.code, 0);
    await link.ping(5000);
  });

  test("orphans are reaped by the agent", async () => {
    await run(link, exec("/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 & ) ; done; sleep 0.2"));
    const { stdout } = await run(link, exec("/bin/ps", "-o", "stat,args"));
    assert.doesNotMatch(stdout.toString(), /^Z/m);
  });

  test("a name brings its group, its supplementary groups and its home", async () => {
    assert.equal(await whoIs(link, "ann"), "1000 | 1001 | 1001 10 20 | ann ann /home/ann");
    assert.equal(await whoIs(link, "root"), "0 | 0 | 0 10 | root root /root");
    assert.equal(await whoIs(link, "bob"), "12 | 13 | 13 | bob bob /");
  });

  test("numbers need no entry, and find theirs", async () => {
    assert.equal(await whoIs(link, "1000"), "1000 | 1001 | 1001 10 20 | ann ann /home/ann");
    assert.equal(await whoIs(link, "4242"), "4242 | 0 | 0 | /");
    assert.equal(await whoIs(link, "4242:4343"), "4242 | 4343 | 4343 | /");
    assert.equal(await whoIs(link, "7"), "7 | 0 | 0 | /");
  });

  test("a group that is named replaces all others", async () => {
    assert.equal(await whoIs(link, "ann:dev"), "1000 | 20 | 20 | ann ann /home/ann");
    assert.equal(await whoIs(link, "ann:77"), "1000 | 77 | 77 | ann ann /home/ann");
    assert.equal(await whoIs(link, "0:wheel"), "0 | 10 | 10 | root root /root");
  });

  test("who is not there is InvalidArgument", async () => {
    for (const user of [
      "eve",
      "ann:none",
      "",
      ":",
      ":dev",
      "ann:",
      "4294967295",
      "99999999999",
      "an",
      "ann\nroot",
      "x".repeat(300),
    ]) {
      await assert.rejects(whoIs(link, user), { kind: "InvalidArgument" }, user);
    }
  });

  test("hostile databases are refused or read past, and never waited for", async () => {
    const passwd = join(root.path, "etc/passwd");
    await rm(passwd);
    execFileSync("mkfifo", [passwd]);
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument" });
    await rm(passwd);
    await mkdir(passwd);
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument" });
    assert.equal(await whoIs(link, "7:8"), "7 | 8 | 8 | /");
    await rm(passwd, { recursive: true });
    await symlink("/etc/passwd", passwd);
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument" });
    await rm(passwd);
    await symlink("/proc/self/mem", passwd);
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument", message: /\(EIO\)/ });
    assert.equal(await whoIs(link, "7:8"), "7 | 8 | 8 | /");
    await rm(passwd);
    await root.passwd("a".repeat(200_000));
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument" });
    const long = `x:${"y".repeat(100_000)}\neve:x:0:0::/:`;
    await root.passwd(
      Buffer.concat([Buffer.from(long), Buffer.from("\n\0\0\n:::::\nann:x:1000:1001::/home/ann:"), Buffer.alloc(3)]),
    );
    assert.match(await whoIs(link, "ann"), /^1000 \| 1001/);
    // What lies within a line that is too long is no entry.
    await root.passwd(`${"y".repeat(65_535)}eve:x:5:5::/:\nann:x:1000:1001::/:\n`);
    await assert.rejects(whoIs(link, "eve"), { kind: "InvalidArgument" });
    await root.passwd("big:x:99999999999:0::/:\nneg:x:-1:0::/:\n");
    await assert.rejects(whoIs(link, "big"), { kind: "InvalidArgument" });
    await assert.rejects(whoIs(link, "neg"), { kind: "InvalidArgument" });
    await rm(passwd);
    assert.equal(await whoIs(link, "root"), "0 | 0 | 0 10 | root root /root");
    await assert.rejects(whoIs(link, "ann"), { kind: "InvalidArgument" });
  });
});
