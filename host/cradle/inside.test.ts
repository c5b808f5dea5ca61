import assert from "node:assert/strict";
import { existsSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Cradle, CradleRequest } from "./client.ts";
import { ask, makeRig, type Rig, shell, stop } from "./testdata/rig.ts";

/** Every promise holds however the kernel takes layers, and under the sanitizers. */
const VARIANTS = [
  { name: "layers by descriptor", options: { overlayMode: "fd" } },
  { name: "out of a blank", options: { overlayMode: "fd" }, blank: true },
  { name: "layers by path", options: { overlayMode: "paths" } },
  { name: "with sanitizers", options: { binary: resolve(import.meta.dirname, "../../.build/dsec-cradle-asan") } },
] as const satisfies readonly { name: string; options: object; blank?: boolean }[];

const NAMESPACES = ["ipc", "mnt", "net", "pid", "user", "uts"];
const MASKED = ["interrupts", "kcore", "keys", "timer_list", "sched_debug", "kpageflags"];

for (const [number, variant] of VARIANTS.entries()) {
  describe(`the inside of a sandbox, ${variant.name}`, () => {
    let rig: Rig;
    let cradle: Cradle;
    let request: CradleRequest;
    let pid: number;
    let facts: string;

    before(async () => {
      rig = makeRig();
      cradle = await rig.start(variant.options);
      request = rig.request(`inside${number}`, { cgroups: rig.cgroups("inside") });
      if ("blank" in variant) await cradle.blank(rig.blank(request), AbortSignal.timeout(20_000));
      pid = (await cradle.create(request, AbortSignal.timeout(20_000))).pid;
      facts = await ask(request, "@facts");
    });
    after(async () => {
      using _rig = rig;
      await using _cradle = cradle;
      await stop(cradle, pid);
    });
    const out = async (line: string) => (await shell(request, line)).out.trim();

    test("the agent is process 1, root, of no group, in a session of its own", () => {
      for (const fact of ["pid 1", "uid 0", "gid 0", "groups 0", "sid 1", "cwd /", "root /"]) {
        assert.match(facts, new RegExp(`^${fact}$`, "m"));
      }
    });

    test("its ids are the sandbox's own range of the host's", () => {
      for (const map of ["uid-map", "gid-map"]) {
        assert.match(facts, new RegExp(`^${map} +0 +${request.uidBase} +65536$`, "m"));
      }
      assert.match(readFileSync(`/proc/${pid}/status`, "utf8"), new RegExp(`^Uid:\\s${request.uidBase}\\s`, "m"));
    });

    test("every namespace differs from the host's", () => {
      for (const name of NAMESPACES) {
        const inside = new RegExp(`^ns-${name} (.*)$`, "m").exec(facts)?.[1];
        assert.match(inside ?? "", /^\w+:\[\d+\]$/);
        assert.notEqual(inside, readlinkSync(`/proc/self/ns/${name}`));
      }
    });

    test("it inherits the listener and the handed-over cgroups, nothing else", () => {
      const fds = [...facts.matchAll(/^fd (\d+) (.*)$/gm)].map((match) => [Number(match[1]), match[2] ?? ""] as const);
      // The connection that asked is the agent's own.
      const inherited = fds
        .slice(0, -1)
        .map(([, target]) => target.replace(/\[\d+\]/, "").replace(/.*\/(?=tasks$|cgroup\.)/, ""));
      const handedOver = request.cgroups.map(({ dir }) => (existsSync(join(dir, "tasks")) ? "tasks" : "cgroup.procs"));
      assert.deepEqual(inherited, ["/dev/null", "/dev/null", "/dev/null", "socket:", ...handedOver]);
      assert.match(facts, /^environment 0$/m);
      assert.match(facts, /^sigchld-blocked 0$/m);
      assert.deepEqual(
        [...facts.matchAll(/^arg (.*)$/gm)].map((match) => match[1]),
        ["dsec-agent", `--cgroups=${request.cgroups.length}`, "--probe"],
      );
    });

    test("the cgroups have their limits, and the agent enters them by what it was handed", async () => {
      for (const cgroup of request.cgroups) {
        for (const [file, value] of cgroup.writes) {
          assert.equal(readFileSync(join(cgroup.dir, file), "utf8").trim(), value);
        }
        assert.equal(readFileSync(join(cgroup.dir, "cgroup.procs"), "utf8"), "");
      }
      assert.doesNotMatch(await ask(request, "@enter"), /refused/);
      for (const cgroup of request.cgroups) {
        assert.equal(readFileSync(join(cgroup.dir, "cgroup.procs"), "utf8").trim(), String(pid));
      }
    });

    test("layers are joined, and belong to root of the sandbox", async () => {
      assert.equal(await out("cat /etc/base /etc/top"), "from the base\nfrom the top");
      assert.equal(await out("stat -c %u:%g /bin/busybox /etc /"), "0:0\n0:0\n0:0");
    });

    test("as many layers are joined as an overlay takes", async () => {
      const names = Array.from({ length: 500 - request.layers.length }, (_, at) => String(at));
      // Parts of one image: an overlay wants trees that do not overlap.
      const image = rig.layer("many", Object.fromEntries(names.map((name) => [`${name}/many/${name}`, "x"])));
      const many = rig.request(`many${number}`, { cgroups: rig.cgroups("many") });
      const layers = [...many.layers, ...names.map((name) => join(image, name))];
      const made = await cradle.create({ ...many, layers }, AbortSignal.timeout(20_000));
      assert.equal((await shell(many, "ls /many | wc -l; cat /etc/top")).out.trim(), `${names.length}\nfrom the top`);
      await stop(cradle, made.pid);
    });

    test("writes land in the upper under plain ids, and the layer stays as it is", async () => {
      assert.equal(
        (await shell(request, "echo new >> /etc/base && echo x > /tmp/u && chown 1000:1000 /tmp/u")).status,
        0,
      );
      assert.equal(readFileSync(join(request.upperDir, "etc/base"), "utf8"), "from the base\nnew\n");
      assert.equal(statSync(join(request.upperDir, "etc/base")).uid, 0);
      assert.equal(statSync(join(request.upperDir, "tmp/u")).uid, 1000);
      assert.equal(readFileSync(join(request.layers[0] ?? "", "etc/base"), "utf8"), "from the base\n");
    });

    test("nothing of the host's mounts or paths shows", async () => {
      const mounts = await out("cat /proc/self/mountinfo");
      assert.doesNotMatch(mounts, /dsec-cradle|boxes|\/new|\/private\/|ext4|btrfs|erofs/);
      const types = new Set([...mounts.matchAll(/ - (\w+) /g)].map((match) => match[1]));
      assert.deepEqual([...types].sort(), ["devpts", "mqueue", "overlay", "proc", "sysfs", "tmpfs"]);
      assert.ok(mounts.split("\n").length < 40, mounts);
    });

    test("masked files are empty and unreadable trees are not there", async () => {
      for (const name of MASKED) {
        assert.equal(await out(`if test -e /proc/${name}; then cat /proc/${name} | wc -c; else echo 0; fi`), "0", name);
      }
      for (const name of ["/proc/acpi", "/proc/scsi", "/sys/firmware"]) {
        assert.equal(await out(`ls -A ${name} 2>/dev/null | wc -l`), "0", name);
      }
    });

    test("the kernel's switches are read-only", async () => {
      for (const path of [
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/kernel/shmmax",
        "/sys/kernel/mm/ksm/run",
        "/sys/x",
      ]) {
        assert.notEqual((await shell(request, `echo 0 > ${path}`)).status, 0, path);
      }
    });

    test("no remount makes shared trees writable, whatever the capabilities", async () => {
      for (const path of ["/sys", "/dev"]) {
        assert.notEqual((await shell(request, `mount -o remount,bind,rw ${path}`)).status, 0, path);
      }
    });

    test("/dev has the usual nodes, which work, and takes no others", async () => {
      assert.equal(
        await out("echo gone > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c"),
        "4\n4",
      );
      assert.equal(
        await out("ls /dev"),
        "core\nfd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero",
      );
      assert.equal(await out("stat -c %a /dev/pts/ptmx /dev/null"), "666\n666");
      assert.notEqual((await shell(request, "touch /dev/x")).status, 0);
    });

    test("/dev/shm holds what it may and no more", async () => {
      assert.equal((await shell(request, "head -c 900000 /dev/zero > /dev/shm/a")).status, 0);
      assert.match(
        await out("dd if=/dev/zero of=/dev/shm/b bs=1000000 count=2; stat -c %a /dev/shm"),
        /No space left(.|\n)*1777/,
      );
      await shell(request, "rm -f /dev/shm/a /dev/shm/b");
    });

    test("host name, hosts and resolver are the request's, and stay out of the upper", async () => {
      assert.equal(await out("hostname; cat /etc/hostname"), `${request.hostname}\n${request.hostname}`);
      assert.equal(`${await out("cat /etc/hosts")}\n`, request.hosts);
      assert.equal(`${await out("cat /etc/resolv.conf")}\n`, request.resolvConf);
      assert.throws(() => statSync(join(request.upperDir, "etc/hosts")), { code: "ENOENT" });
    });

    test("the network is a loopback device alone, and the agent's socket has no path inside", async () => {
      assert.equal(await out("tail -n +3 /proc/net/dev | wc -l; ls /sys/class/net"), "1\nlo");
      assert.doesNotMatch(await out("cat /proc/net/unix"), /agent\.sock/);
      assert.equal(await out("find / -xdev -name agent.sock"), "");
      assert.equal(statSync(request.socketPath).mode & 0o777, 0o600);
    });

    test("the sandbox's root, with every capability, cannot touch the agent", async () => {
      const attempts = (await out("attacker")).split("\n").map((line) => line.split(" "));
      assert.ok(attempts.length >= 22);
      assert.ok(attempts.some(([attempt]) => attempt === "escape-to-private"));
      for (const [attempt, errno] of attempts) assert.notEqual(errno, "0", `${attempt} got through`);
      assert.match(await ask(request, "@facts"), /^pid 1$/m);
    });
  });
}
