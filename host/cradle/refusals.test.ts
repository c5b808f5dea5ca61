import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Duplex } from "node:stream";
import { after, before, describe, test } from "node:test";
import { readMounts } from "#host/sys/mountinfo.ts";
import { type Cradle, type CradleRequest, startCradle } from "./client.ts";
import { leftovers, makeRig, type Rig, shell, stop } from "./testdata/rig.ts";

describe("a create that fails leaves nothing, wherever it stops", () => {
  let rig: Rig;
  let cradle: Cradle;
  let number = 0;

  before(async () => {
    rig = makeRig();
    cradle = await rig.start();
  });
  after(async () => {
    using _rig = rig;
    await cradle[Symbol.asyncDispose]();
  });

  const aRequest = () => {
    const id = `bad${++number}`;
    return rig.request(id, { cgroups: rig.cgroups(id) });
  };
  const ownMounts = () => readMounts().filter((mount) => mount.target.startsWith(rig.dir));
  /** The create is refused with this error, nothing is left, and the launcher still works. */
  const refused = async (request: CradleRequest, kind: string, stage: RegExp) => {
    const mountsBefore = ownMounts();
    await assert.rejects(cradle.create(request, AbortSignal.timeout(20_000)), (error: Error & { kind: string }) => {
      assert.match(error.message, stage);
      assert.equal(error.kind, kind, error.message);
      return true;
    });
    assert.deepEqual(leftovers(cradle, [request]), []);
    assert.deepEqual(ownMounts(), mountsBefore);
  };

  const cases: readonly (readonly [string, (request: CradleRequest) => CradleRequest, string, RegExp])[] = [
    ["no layers", (r) => ({ ...r, layers: [] }), "Internal", /request field 3/],
    ["a range of ids that holds the host's root", (r) => ({ ...r, uidBase: 0 }), "Internal", /request field 2/],
    ["a range of ids past the last", (r) => ({ ...r, uidBase: 0xffff_8000 }), "Internal", /request field 2/],
    ["a host name that is too long", (r) => ({ ...r, hostname: "h".repeat(65) }), "Internal", /request field 6/],
    ["a relative path", (r) => ({ ...r, upperDir: "upper" }), "Internal", /request field 4/],
    ["no shared memory", (r) => ({ ...r, shmBytes: 0 }), "Internal", /request field 15/],
    ["a layer that is missing", (r) => ({ ...r, layers: [...r.layers, "/no/layer"] }), "Internal", /: layer: ENOENT/],
    ["a layer that cannot be shifted", (r) => ({ ...r, layers: ["/proc"] }), "Internal", /shift the ids/],
    ["an upper that is missing", (r) => ({ ...r, upperDir: `${r.upperDir}x` }), "Internal", /: upper: ENOENT/],
    ["a work directory that is missing", (r) => ({ ...r, workDir: `${r.workDir}x` }), "Internal", /workdir: ENOENT/],
    ["a work directory on another mount", (r) => ({ ...r, workDir: "/proc/sys" }), "Internal", /workdir|overlay/],
    ["a socket in no directory", (r) => ({ ...r, socketPath: "/no/dir/agent.sock" }), "Internal", /: socket: .*ENOENT/],
  ];
  for (const [name, change, kind, stage] of cases) {
    test(name, () => refused(change(aRequest()), kind, stage));
  }

  test("an upper that an id of the host owns", async () => {
    const request = aRequest();
    chownSync(request.upperDir, request.uidBase, request.uidBase);
    await refused(request, "Internal", /does not have plain ids/);
  });

  test("a cgroup that cannot be made, after others were", async () => {
    const request = aRequest();
    const bad = { dir: "/sys/fs/cgroup/no/such/parent", writes: [], handOver: false };
    await refused({ ...request, cgroups: [...request.cgroups, bad] }, "Internal", /: cgroup: make/);
  });

  test("a limit that the kernel refuses", async () => {
    const request = aRequest();
    const cgroups = request.cgroups.map((cgroup) => ({ ...cgroup, writes: [["cgroup.procs", "nonsense"]] as const }));
    await refused({ ...request, cgroups }, "Internal", /write nonsense to cgroup.procs: EINVAL/);
  });

  test("a limit file outside of its cgroup", async () => {
    const request = aRequest();
    const cgroups = request.cgroups.map((cgroup) => ({ ...cgroup, writes: [["../x", "1"]] as const }));
    await refused({ ...request, cgroups }, "Internal", /request field 12/);
  });

  test("a cgroup that exists is refused, and stays", async () => {
    const request = aRequest();
    const dir = request.cgroups[0]?.dir ?? "";
    mkdirSync(dir);
    await assert.rejects(cradle.create(request, AbortSignal.timeout(20_000)), { kind: "FailedPrecondition" });
    assert.deepEqual(leftovers(cradle, [request]), [dir]);
  });

  test("a socket path that is taken is refused, and what is there stays", async () => {
    const request = aRequest();
    writeFileSync(request.socketPath, "mine");
    await assert.rejects(cradle.create(request, AbortSignal.timeout(20_000)), { kind: "FailedPrecondition" });
    assert.deepEqual(leftovers(cradle, [request]), [request.socketPath]);
  });

  test("a volume without room is reported as such", async () => {
    const request = aRequest();
    const home = join(request.upperDir, "..");
    execFileSync("mount", ["-t", "tmpfs", "-o", "nr_inodes=3", "tmpfs", home]);
    try {
      for (const part of ["upper", "work"]) mkdirSync(join(home, part));
      const socketPath = join(rig.dir, "full.sock");
      await refused({ ...request, socketPath }, "StorageFull", /overlay/);
    } finally {
      execFileSync("umount", [home]);
    }
  });

  test("an image whose /proc, /dev or /etc is no place to mount on", async () => {
    const images = [
      ["proc-link", { proc: "->etc", "etc/x": "" }, /place of \/proc/],
      ["dev-file", { dev: "a file" }, /place of \/dev/],
      ["sys-link", { sys: "->/" }, /place of \/sys/],
      ["etc-file", { etc: "a file" }, /place of \/etc/],
      ["hosts-dir", { "etc/hosts": "/" }, /mount \/etc\/hosts/],
    ] as const;
    for (const [name, files, stage] of images) {
      const layers = [rig.layer(name, files)];
      const request = aRequest();
      await refused({ ...request, layers }, name === "hosts-dir" ? "Internal" : "FailedPrecondition", stage);
    }
  });

  test("links of an image never lead a mount out of it", async () => {
    const base = rig.layer("links", {
      "etc/hosts": "->../../../../../tmp/hosts-target",
      "etc/resolv.conf": "->/run/nowhere/resolv.conf",
      "etc/hostname": "->/proc/self/root/etc/hostname",
      "tmp/": "/",
    });
    const request = rig.request(`links${++number}`);
    const { pid } = await cradle.create({ ...request, layers: [...request.layers, base] }, AbortSignal.timeout(20_000));
    const seen = await shell(request, "cat /tmp/hosts-target /etc/resolv.conf /etc/hostname");
    assert.equal(seen.out, `${request.hosts}${request.resolvConf}${request.hostname}\n`);
    await stop(cradle, pid);
  });

  test("an image with nothing in it but a program gets its mount points", async () => {
    const bare = rig.layer("bare", {});
    const request = { ...aRequest(), layers: [bare] };
    const { pid } = await cradle.create(request, AbortSignal.timeout(20_000));
    assert.deepEqual(execFileSync("ls", [request.upperDir], { encoding: "utf8" }).trim().split("\n"), [
      "dev",
      "etc",
      "proc",
      "sys",
    ]);
    await stop(cradle, pid);
  });
});

describe("the launcher refuses to start", () => {
  const binary = resolve(import.meta.dirname, "../../.build/dsec-cradle");
  const log = () => {};

  test("with an agent that its sandbox could read or change", async () => {
    using rig = makeRig();
    for (const mode of [0o755, 0o711 | 0o022, 0o4711]) {
      const agentBinary = join(rig.dir, "agent");
      copyFileSync(rig.agentBinary, agentBinary);
      chmodSync(agentBinary, mode);
      await assert.rejects(startCradle({ binary, agentBinary, log }), {
        kind: "FailedPrecondition",
        details: { errno: "EPERM", stage: `agent ${agentBinary}: is not a root-owned file of mode 0711` },
      });
      rmSync(agentBinary);
    }
  });

  test("without an agent, and when it is missing itself", async () => {
    await assert.rejects(startCradle({ binary, agentBinary: "/no/agent", log }), { kind: "FailedPrecondition" });
    await assert.rejects(startCradle({ binary: "/no/cradle", agentBinary: "/x", log }), { kind: "FailedPrecondition" });
  });

  test("to go on with a peer that does not speak its protocol", async () => {
    using rig = makeRig();
    for (const bytes of [
      Buffer.alloc(64),
      Buffer.alloc(64, 0xff),
      Buffer.from([8, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0]),
    ]) {
      const child = spawn(binary, [rig.agentBinary], { stdio: ["ignore", "ignore", "ignore", "pipe"] });
      const ended = once(child, "exit");
      const link = child.stdio[3] as Duplex;
      link.resume();
      link.on("error", () => {});
      link.write(bytes);
      assert.deepEqual(await ended, [2, null]);
    }
  });
});
