import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { chmod, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { EntryDecoder } from "#core/entries.ts";
import type { GuestLink, TaskAction } from "#core/guest.ts";
import type { FileInfo } from "#core/sandbox.ts";
import { EXEC_DEFAULTS, forEachBuild, nextNumber, Recorder, type RunOptions, run, TestAgent } from "./testing.ts";

const {
  EACCES,
  EBUSY,
  ECANCELED,
  EEXIST,
  EFBIG,
  EINVAL,
  EISDIR,
  ELOOP,
  ENAMETOOLONG,
  ENOENT,
  ENOTDIR,
  ENOTEMPTY,
  EPERM,
} = constants.errno;

const list = (path: Uint8Array, depth = 1, hidden = true): TaskAction => ({ type: "list", path, depth, hidden });

class Place implements AsyncDisposable {
  readonly agent: TestAgent;
  readonly link: GuestLink;
  readonly directory: string;

  private constructor(agent: TestAgent, link: GuestLink, directory: string) {
    this.agent = agent;
    this.link = link;
    this.directory = directory;
  }

  static async make(build: "static" | "asan", args: readonly string[] = []): Promise<Place> {
    const agent = await TestAgent.start({ build, args });
    const directory = await mkdtemp(join(tmpdir(), "dsec-files-"));
    await chmod(directory, 0o755);
    return new Place(agent, await agent.connect(), directory);
  }

  path(...names: readonly string[]): Buffer {
    return Buffer.from(join(this.directory, ...names));
  }

  /** The action's errno, and what it wrote. */
  async act(action: TaskAction, options: RunOptions = {}): Promise<{ readonly code: number; readonly bytes: Buffer }> {
    const { end, stdout } = await run(this.link, action, options);
    assert.equal(end.cause, "exited");
    return { code: end.code ?? -1, bytes: stdout };
  }

  async code(action: TaskAction, options: RunOptions = {}): Promise<number> {
    return (await this.act(action, options)).code;
  }

  async entries(action: TaskAction): Promise<FileInfo[]> {
    const { code, bytes } = await this.act(action);
    assert.equal(code, 0);
    const decoder = new EntryDecoder();
    const entries = decoder.push(bytes);
    decoder.end();
    return entries;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.link.close();
    await this.agent[Symbol.asyncDispose]();
    await rm(this.directory, { recursive: true, force: true });
  }
}

function write(path: Buffer, mode = 0o644, parents = false): TaskAction {
  return { type: "write", path, mode, parents };
}

function read(path: Buffer, offset = 0, length: number | undefined = undefined): TaskAction {
  return { type: "read", path, offset, length };
}

forEachBuild((build) => {
  describe(`file actions of the ${build} agent`, () => {
    test("a file of 10 MB goes in and comes out unchanged, in whole and in part", async () => {
      await using place = await Place.make(build);
      const bytes = randomBytes(10_000_000);
      assert.equal(await place.code(write(place.path("f"), 0o640), { input: bytes }), 0);
      assert.equal((await stat(place.path("f"))).mode & 0o7777, 0o640);
      const whole = await place.act(read(place.path("f")));
      assert.equal(
        createHash("sha256").update(whole.bytes).digest("hex"),
        createHash("sha256").update(bytes).digest("hex"),
      );
      assert.deepEqual(
        (await place.act(read(place.path("f"), 1_234_567, 70_000))).bytes,
        bytes.subarray(1_234_567, 1_304_567),
      );
      assert.deepEqual((await place.act(read(place.path("f"), 9_999_990))).bytes, bytes.subarray(9_999_990));
      assert.deepEqual(await place.act(read(place.path("f"), 20_000_000, 5)), { code: 0, bytes: Buffer.alloc(0) });
      assert.deepEqual(await place.act(read(place.path("f"), 0, 0)), { code: 0, bytes: Buffer.alloc(0) });
    });

    test("reading refuses what is not a regular file, and never hangs", async () => {
      await using place = await Place.make(build);
      execFileSync("mkfifo", [place.path("fifo").toString()]);
      await symlink("loop", place.path("loop"));
      assert.equal(await place.code(read(place.path("fifo"))), EINVAL);
      assert.equal(await place.code(read(Buffer.from("/dev/zero"))), EINVAL);
      assert.equal(await place.code(read(place.path())), EISDIR);
      assert.equal(await place.code(read(place.path("none"))), ENOENT);
      assert.equal(await place.code(read(place.path("loop"))), ELOOP);
      assert.equal(await place.code(read(Buffer.from("/etc/passwd/x"))), ENOTDIR);
      assert.equal(await place.code(read(place.path("x".repeat(256)))), ENAMETOOLONG);
      assert.equal(await place.code(read(Buffer.from("/etc/shadow")), { user: "nobody" }), EACCES);
      assert.ok((await place.act(read(Buffer.from("/proc/self/status")))).bytes.includes("Name:"));
    });

    test("writing replaces atomically, through links, and leaves no temporary", async () => {
      await using place = await Place.make(build);
      await mkdir(place.path("d"));
      await writeFile(place.path("d", "real"), "old");
      await symlink("d/real", place.path("relative"));
      await symlink(place.path("relative").toString(), place.path("absolute"));
      assert.equal(await place.code(write(place.path("absolute")), { input: Buffer.from("new") }), 0);
      assert.equal(await readFile(place.path("d", "real"), "utf8"), "new");
      assert.equal(await readlink(place.path("relative")), "d/real");
      await symlink("d/fresh", place.path("dangling"));
      assert.equal(await place.code(write(place.path("dangling")), { input: Buffer.from("made") }), 0);
      assert.equal(await readFile(place.path("d", "fresh"), "utf8"), "made");
      assert.deepEqual((await readdir(place.path("d"))).sort(), ["fresh", "real"]);
    });

    test("a write that breaks off leaves the old file and nothing else", async () => {
      await using place = await Place.make(build);
      await writeFile(place.path("f"), "old");
      const number = nextNumber();
      const recorder = new Recorder(() => {});
      const task = { ...EXEC_DEFAULTS, stdin: "pipe", action: write(place.path("f")) } as const;
      await place.link.start(number, task, recorder);
      await place.link.writeStdin(number, 0, Buffer.alloc(200_000));
      place.link.forget(number);
      const killed = nextNumber();
      const other = new Recorder(() => {});
      await place.link.start(killed, task, other);
      await place.link.writeStdin(killed, 0, Buffer.alloc(200_000));
      place.link.signal(killed, constants.signals.SIGKILL, "leader");
      assert.equal((await other.status.promise).signal, "SIGKILL");
      assert.equal(
        await place
          .code(write(place.path("g")), { input: Buffer.alloc(10), keepOpen: true, timeLimitMs: 100 })
          .catch(() => ECANCELED),
        ECANCELED,
      );
      assert.deepEqual(await readdir(place.directory), ["f"]);
      assert.equal(await readFile(place.path("f"), "utf8"), "old");
    });

    test("an edge that vanishes in mid-write has changed nothing until it comes back and finishes", async () => {
      await using place = await Place.make(build);
      const number = nextNumber();
      const task = { ...EXEC_DEFAULTS, stdin: "pipe", action: write(place.path("f")) } as const;
      await place.link.start(number, task, new Recorder(() => {}));
      await place.link.writeStdin(number, 0, Buffer.from("half "));
      place.link.close();
      const again = await place.agent.connect();
      assert.deepEqual(await readdir(place.directory), []);
      const recorder = new Recorder(() => {});
      again.attach(number, { stdout: 0, stderr: 0 }, recorder);
      await again.writeStdin(number, 5, Buffer.from("whole"));
      again.closeStdin(number);
      assert.equal((await recorder.status.promise).code, 0);
      assert.equal(await readFile(place.path("f"), "utf8"), "half whole");
      again.close();
    });

    test("writing refuses directories, devices, FIFOs, loops, and files the user may not write", async () => {
      await using place = await Place.make(build);
      const input = Buffer.from("x");
      execFileSync("mkfifo", [place.path("fifo").toString()]);
      await symlink("loop", place.path("loop"));
      await writeFile(place.path("readonly"), "old", { mode: 0o444 });
      assert.equal(await place.code(write(place.path()), { input }), EISDIR);
      assert.equal(await place.code(write(place.path("new/")), { input }), EISDIR);
      assert.equal(await place.code(write(Buffer.from("/dev/null")), { input }), EINVAL);
      assert.equal(await place.code(write(place.path("fifo")), { input }), EINVAL);
      assert.equal(await place.code(write(place.path("loop")), { input }), ELOOP);
      assert.equal(await place.code(write(place.path("no", "dir")), { input }), ENOENT);
      assert.equal(await place.code(write(place.path("f")), { input, user: "nobody" }), EACCES);
      await chmod(place.directory, 0o777);
      assert.equal(await place.code(write(place.path("readonly")), { input, user: "nobody" }), EACCES);
      assert.equal(await place.code(write(place.path("own")), { input, user: "nobody" }), 0);
      assert.equal((await stat(place.path("own"))).uid, 65534);
      assert.equal(await place.code(write(place.path("a", "b", "c"), 0o600, true), { input }), 0);
      assert.equal(await place.code(write(place.path("own", "c"), 0o600, true), { input }), ENOTDIR);
    });

    test("a limit on file sizes is an error, not a death", async () => {
      await using place = await Place.make(build, ["--rlimit=fsize:1000:1000"]);
      assert.equal(await place.code(write(place.path("f")), { input: Buffer.alloc(5000) }), EFBIG);
      assert.deepEqual(await readdir(place.directory), []);
    });

    test("a listing gives every kind of entry, odd names as bytes, links as links", async () => {
      await using place = await Place.make(build);
      const odd = Buffer.from([0xff, 0x0a, 0x20, 0xc3, 0x28]);
      await writeFile(Buffer.concat([place.path(), Buffer.from("/"), odd]), "12345", { mode: 0o600 });
      await mkdir(place.path("dir"), 0o700);
      await symlink("no/where", place.path("link"));
      await writeFile(place.path("n".repeat(255)), "");
      execFileSync("mkfifo", ["-m", "644", place.path("fifo").toString()]);
      const entries = await place.entries(list(place.path()));
      const byName = new Map(entries.map((entry) => [Buffer.from(entry.name).toString("latin1"), entry]));
      assert.deepEqual(
        [...byName.keys()].sort(),
        ["dir", "fifo", "link", "n".repeat(255), odd.toString("latin1")].sort(),
      );
      const file = byName.get(odd.toString("latin1"));
      assert.deepEqual([file?.type, file?.mode, file?.uid, file?.size], ["file", 0o600, 0, 5]);
      assert.ok(Math.abs(Number((file?.mtimeNs ?? 0n) / 1_000_000n) - Date.now()) < 60_000);
      assert.equal(byName.get("dir")?.type, "directory");
      assert.equal(byName.get("fifo")?.type, "fifo");
      assert.equal(Buffer.from(byName.get("link")?.target ?? []).toString(), "no/where");
      const devices = await place.entries(list(Buffer.from("/dev")));
      assert.equal(devices.find((entry) => Buffer.from(entry.name).toString() === "null")?.type, "character-device");
    });

    test("a listing of 5,000 names is complete, of what is no directory refused", async () => {
      await using place = await Place.make(build);
      await Promise.all(Array.from({ length: 5000 }, (_, index) => writeFile(place.path(`name-${index}`), "")));
      const entries = await place.entries(list(place.path()));
      assert.equal(new Set(entries.map((entry) => Buffer.from(entry.name).toString())).size, 5000);
      assert.equal(await place.code(list(place.path("name-1"))), ENOTDIR);
      assert.equal(await place.code(list(place.path("none"))), ENOENT);
      await mkdir(place.path("private"), 0o700);
      assert.equal(await place.code(list(place.path("private")), { user: "nobody" }), EACCES);
    });

    test("a listing with a depth goes as deep, follows no link, and leaves hidden names out when told", async () => {
      await using place = await Place.make(build);
      await mkdir(place.path("a", "b", "c"), { recursive: true });
      await mkdir(place.path(".h", "in"), { recursive: true });
      await symlink("a", place.path("link"));
      const names = async (depth: number, hidden: boolean) =>
        (await place.entries(list(place.path(), depth, hidden))).map(({ name }) => String(Buffer.from(name))).sort();
      assert.deepEqual(await names(1, true), [".h", "a", "link"]);
      assert.deepEqual(await names(2, true), [".h", ".h/in", "a", "a/b", "link"]);
      assert.deepEqual(await names(64, false), ["a", "a/b", "a/b/c", "link"]);
      assert.equal(await place.code(list(place.path("none"), 2)), ENOENT);
    });

    test("a listing goes on behind a directory it went into, however many there are", async () => {
      await using place = await Place.make(build);
      for (let index = 0; index < 700; index++)
        await mkdir(place.path(`d${index}`, "x".repeat(200)), { recursive: true });
      const entries = await place.entries(list(place.path(), 2));
      assert.equal(new Set(entries.map(({ name }) => String(Buffer.from(name)))).size, 1400);
      assert.equal(entries.length, 1400);
    });

    test("a time has its nanoseconds, before 1970 too, and one beyond the coding is cut", async () => {
      await using place = await Place.make(build);
      for (const [time, ns] of [
        ["1.000000007", 1_000_000_007n],
        ["-0.5", -500_000_000n],
        ["9999999999", 2n ** 63n - 1n],
      ] as const) {
        execFileSync("touch", ["-d", `@${time}`, String(place.path("f"))]);
        const [entry] = await place.entries({ type: "stat", path: place.path("f") });
        assert.equal(entry?.mtimeNs, ns);
      }
    });

    test("chmod, chown and symlink do one thing, as the user", async () => {
      await using place = await Place.make(build);
      const path = place.path("f");
      await writeFile(path, "");
      assert.equal(await place.code({ type: "chmod", path, mode: 0o4711 }), 0);
      assert.equal((await stat(path)).mode & 0o7777, 0o4711);
      assert.equal(await place.code({ type: "chmod", path, mode: 0o700 }, { user: "nobody" }), EPERM);
      assert.equal(await place.code({ type: "chown", path, owner: "7:8" }), 0);
      assert.deepEqual([(await stat(path)).uid, (await stat(path)).gid], [7, 8]);
      assert.equal(await place.code({ type: "chown", path, owner: "no-such-user" }), EINVAL);
      const link: TaskAction = {
        type: "symlink",
        path: place.path("p", "l"),
        target: Buffer.from([0xff]),
        parents: true,
      };
      assert.equal(await place.code({ ...link, parents: false }), ENOENT);
      assert.equal(await place.code(link), 0);
      assert.deepEqual(await readlink(place.path("p", "l"), { encoding: "buffer" }), Buffer.from([0xff]));
      assert.equal(await place.code(link), EEXIST);
    });

    test("a move replaces a file at once unless told to keep it, and takes a directory along", async () => {
      await using place = await Place.make(build);
      const move = (from: string, to: string, replace = true): TaskAction => ({
        type: "move",
        path: place.path(from),
        target: place.path(to),
        replace,
        parents: true,
      });
      await writeFile(place.path("a"), "new");
      await writeFile(place.path("b"), "old");
      assert.equal(await place.code(move("a", "b", false)), EEXIST);
      assert.equal(await place.code(move("a", "b")), 0);
      assert.equal(await readFile(place.path("b"), "utf8"), "new");
      await mkdir(place.path("dir"));
      assert.equal(await place.code(move("b", "dir")), EISDIR);
      assert.equal(await place.code(move("b", "dir/sub/c")), 0);
      assert.equal(await place.code(move("dir", "other/place")), 0);
      assert.equal(await readFile(place.path("other", "place", "sub", "c"), "utf8"), "new");
      assert.equal(await place.code(move("none", "x")), ENOENT);
    });

    test("stat names the last component and does not follow it", async () => {
      await using place = await Place.make(build);
      await symlink("/etc/passwd", place.path("link"));
      const [link] = await place.entries({ type: "stat", path: place.path("link") });
      assert.deepEqual([Buffer.from(link?.name ?? []).toString(), link?.type], ["link", "symlink"]);
      const [root] = await place.entries({ type: "stat", path: Buffer.from("/") });
      assert.deepEqual([root?.name.length, root?.type], [0, "directory"]);
      assert.equal(await place.code({ type: "stat", path: place.path("none") }), ENOENT);
    });

    test("mkdir gives the exact mode, and with parents is content with what is there", async () => {
      await using place = await Place.make(build);
      const make = (path: Buffer, parents: boolean): TaskAction => ({ type: "mkdir", path, mode: 0o1777, parents });
      assert.equal(await place.code(make(place.path("a"), false)), 0);
      assert.equal((await stat(place.path("a"))).mode & 0o7777, 0o1777);
      assert.equal(await place.code(make(place.path("a"), false)), EEXIST);
      assert.equal(await place.code(make(place.path("a"), true)), 0);
      assert.equal(await place.code(make(place.path("b", "c", "d"), false)), ENOENT);
      assert.equal(await place.code(make(place.path("b", "c", "d"), true)), 0);
      assert.equal((await stat(place.path("b"))).mode & 0o777, 0o755);
      await writeFile(place.path("file"), "");
      assert.equal(await place.code(make(place.path("file"), true)), EEXIST);
      assert.equal(await place.code(make(place.path("file", "x"), true)), ENOTDIR);
    });

    test("remove takes files and empty directories, trees only when told, and never follows links", async () => {
      await using place = await Place.make(build);
      const remove = (path: Buffer, recursive = false): TaskAction => ({ type: "remove", path, recursive });
      await mkdir(place.path("kept"));
      await writeFile(place.path("kept", "file"), "precious");
      await mkdir(place.path("tree", "a", "b"), { recursive: true });
      await symlink(place.path("kept").toString(), place.path("tree", "a", "link"));
      await symlink(place.path("kept").toString(), place.path("link"));
      assert.equal(await place.code(remove(place.path("tree"))), ENOTEMPTY);
      assert.equal(await place.code(remove(Buffer.from(`${place.directory}/link/`), true)), ENOTDIR);
      assert.equal(await place.code(remove(place.path("link"), true)), 0);
      assert.equal(await place.code(remove(place.path("tree"), true)), 0);
      assert.equal(await place.code(remove(place.path("tree"), true)), ENOENT);
      assert.equal(await place.code(remove(Buffer.from("/"), true)), EBUSY);
      assert.equal(await place.code(remove(Buffer.from(`${place.directory}/kept/.`), true)), EINVAL);
      assert.equal(await place.code(remove(place.path("kept", "file")), { user: "nobody" }), EACCES);
      assert.deepEqual(await readdir(place.directory), ["kept"]);
      assert.equal(await readFile(place.path("kept", "file"), "utf8"), "precious");
    });

    test("a tree 3,000 levels deep and one of 2,000 full directories are removed", async () => {
      await using place = await Place.make(build);
      // Relative steps, because no path is that long.
      const script = `const fs = require("node:fs");
        for (let i = 0; i < 2000; i++) { fs.mkdirSync("wide/" + i, { recursive: true }); fs.writeFileSync("wide/" + i + "/f", ""); }
        fs.mkdirSync("deep");
        process.chdir("deep");
        for (let i = 0; i < 3000; i++) { fs.mkdirSync("d"); fs.writeFileSync("f", ""); process.chdir("d"); }`;
      execFileSync(process.execPath, ["-e", script], { cwd: place.directory });
      assert.equal(await place.code({ type: "remove", path: place.path("wide"), recursive: true }), 0);
      assert.equal(await place.code({ type: "remove", path: place.path("deep"), recursive: true }), 0);
      assert.deepEqual(await readdir(place.directory), []);
    });
  });
});
