import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { archive, type Member, member, pax } from "#core/tar/test-support/fixtures.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

/** Everything that a tree must keep, made by the sandbox's own tools. */
const NASTY = `
mkdir -p /tmp/tree/sub/deep /tmp/tree/empty && cd /tmp/tree
printf data >file; chmod 4751 file; chown 12:34 file; touch -d @1234567890 file
ln file sub/again
ln -s no/where dangling; ln -s /etc/passwd absolute; ln -s sub link
mkfifo -m 640 pipe
printf x >"$(printf 'odd\\377\\n')"
long=$(printf 'n%.0s' $(seq 200)); mkdir -p "$long/$long"; printf y >"$long/$long/f"
dd if=/dev/zero of=holes bs=1 count=1 seek=50000000 2>/dev/null; printf middle | dd of=holes bs=1 seek=20000000 conv=notrunc 2>/dev/null
chmod 1777 empty; touch -d @987654321 empty sub
`;
/** One line an entry, of all that is kept; the size on disk of the file with holes is looked at apart. */
const TOLD = "find . ! -name . -exec stat -c '%n %F %a %u %g %s %Y %N' {} + | sort";

/** Trees go up and down as tar archives: everything is kept, and nothing gets outside. */
export function treesContract(backend: ContractBackend): void {
  describe(`trees in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node, { resources: { diskMiB: 256 } });
      await output(sandbox, NASTY);
    });
    after(() => node[Symbol.asyncDispose]());
    const given = () => sandbox;

    kept(given);
    refusals(given);
    races(given);
  });
}

type Given = () => Sandbox;

function kept(given: Given): void {
  test("links survive as links: a tree that goes down and up again is the same, holes, hard links and odd names too", async () => {
    const sandbox = given();
    const { entries } = await sandbox.files.writeTree("/tmp/copy", sandbox.files.readTree("/tmp/tree"));
    assert.equal(entries, 15);
    const [before, after] = await Promise.all(
      ["/tmp/tree", "/tmp/copy"].map((path) => output(sandbox, `cd ${path} && ${TOLD}`)),
    );
    assert.equal(after, before);
    assert.equal(await output(sandbox, "cat /tmp/copy/*/*/f /tmp/copy/odd*"), "yx");
    assert.equal(
      await output(sandbox, "stat -c %i /tmp/copy/file"),
      await output(sandbox, "stat -c %i /tmp/copy/sub/again"),
    );
    assert.ok(Number(await output(sandbox, "stat -c %b /tmp/copy/holes")) < 1000);
    assert.equal(await output(sandbox, "cmp /tmp/tree/holes /tmp/copy/holes && echo same"), "same");
  });

  test("the archive is one that tar unpacks, to the nanosecond", async () => {
    const folder = mkdtempSync(join(tmpdir(), "dsec-trees-"));
    try {
      const tar = Buffer.concat(await Array.fromAsync(given().files.readTree("/tmp/tree")));
      writeFileSync(join(folder, "tree.tar"), tar);
      mkdirSync(join(folder, "out"));
      execFileSync("tar", ["-xpf", "tree.tar", "--numeric-owner", "-C", "out"], { cwd: folder });
      const told = (path: string, where: string) =>
        execFileSync("sh", ["-c", `cd ${where} && stat -c '%a %u %g %y' ${path}`], { encoding: "utf8" });
      for (const path of ["file", "holes", "empty", "pipe"]) {
        const inside = await output(given(), `cd /tmp/tree && stat -c '%a %u %g %y' ${path}`);
        assert.equal(
          told(path, join(folder, "out"))
            .trim()
            .replace(/ [+]0000$/, ""),
          inside.replace(/ [+]0000$/, ""),
          path,
        );
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("one file, or one link, is a tree of one entry", async () => {
    const sandbox = given();
    await sandbox.files.writeTree("/tmp/one", sandbox.files.readTree("/tmp/tree/file"));
    await sandbox.files.writeTree("/tmp/one", sandbox.files.readTree("/tmp/tree/dangling"));
    assert.equal(
      await output(sandbox, "cd /tmp/one && ls && cat file && readlink dangling"),
      "dangling\nfile\ndatano/where",
    );
  });

  test("what is there already is replaced or filled, never written through", async () => {
    const sandbox = given();
    await output(
      sandbox,
      "mkdir -p /tmp/over/dir && cd /tmp/over && printf kept >dir/kept && printf old >target && ln -s target file && printf x >sub",
    );
    await sandbox.files.writeTree(
      "/tmp/over",
      archive({ path: "file", body: "new" }, { path: "dir/", flag: "5" }, { path: "sub/", flag: "5" }),
    );
    assert.equal(
      await output(sandbox, "cd /tmp/over && cat target file dir/kept && stat -c %F file sub"),
      "oldnewkept\nregular file\ndirectory".replace("kept\n", "kept"),
    );
  });

  test("owners are those of the archive, or the user's; a user has no more than its rights", async () => {
    const sandbox = given();
    const tar = archive({ path: "d/", flag: "5", uid: 5, gid: 6, mode: 0o755 }, { path: "d/f", uid: 7, gid: 8 });
    await sandbox.files.writeTree("/tmp/owned", tar);
    assert.equal(await output(sandbox, "stat -c %u:%g /tmp/owned/d /tmp/owned/d/f"), "5:6\n7:8");
    await sandbox.files.mkdir("/tmp/mine", { mode: 0o777 });
    await sandbox.files.writeTree("/tmp/mine/x", tar, { owners: false, user: "1000:1000" });
    assert.equal(await output(sandbox, "stat -c %u:%g /tmp/mine/x/d /tmp/mine/x/d/f"), "1000:1000\n1000:1000");
    await refused(
      sandbox.files.writeTree("/tmp/mine/y", tar, { user: "1000:1000" }),
      "PermissionDenied",
      /EPERM at "[df]"/,
    );
    await refused(sandbox.files.writeTree("/etc/x", tar, { owners: false, user: "1000:1000" }), "PermissionDenied");
  });

  test("other file systems below are empty directories: a tree of the root ends", async () => {
    const sandbox = given();
    const names = await namesOf(sandbox, sandbox.files.readTree("/", {}));
    assert.ok(names.includes("./proc/") && names.includes("./bin/"), names.slice(0, 20).join());
    assert.ok(!names.some((name) => name.startsWith("./proc/") && name !== "./proc/"));
  });
}

/** Unpacks in the sandbox's own tar, which is not ours either. */
async function namesOf(sandbox: Sandbox, tar: AsyncIterable<Uint8Array>): Promise<string[]> {
  const result = await sandbox.run(["tar", "-tf", "-"], { stdin: tar });
  return result.stdoutText.split("\n").map((line) => (line.startsWith("./") || line === "" ? line : `./${line}`));
}

function refusals(given: Given): void {
  const hostile: readonly (readonly [what: string, members: readonly (Member | Buffer)[], kind: string])[] = [
    ["a path that leads up", [{ path: "../escaped", body: "x" }], "InvalidArgument"],
    ["a path that leads up inside", [{ path: "a/../../escaped", body: "x" }], "InvalidArgument"],
    ["an absolute path", [{ path: "/tmp/escaped", body: "x" }], "InvalidArgument"],
    [
      "a path through a link of an entry before",
      [
        { path: "l", flag: "2", target: "/tmp" },
        { path: "l/escaped", body: "x" },
      ],
      "InvalidArgument",
    ],
    ["a path through a link that was there", [{ path: "there/escaped", body: "x" }], "InvalidArgument"],
    ["a hard link to outside", [{ path: "h", flag: "1", target: "../outside" }], "InvalidArgument"],
    ["a hard link through a link", [{ path: "h", flag: "1", target: "there/outside" }], "InvalidArgument"],
    ["a hard link to nothing", [{ path: "h", flag: "1", target: "none" }], "NotFound"],
    ["a device", [{ path: "d", flag: "3", device: [1, 3] }], "InvalidArgument"],
    ["no archive", [Buffer.alloc(4096, 0x41)], "InvalidArgument"],
    ["a sparse map out of order", [sparse("2\n100\n10\n50\n10\n", 20)], "InvalidArgument"],
    ["a sparse map beyond its file", [sparse("1\n1000\n10\n", 10)], "InvalidArgument"],
  ];
  for (const [what, members, kind] of hostile) {
    test(`symlinks in uploads leak or overwrite: ${what} is refused, nothing outside is touched`, async () => {
      const sandbox = given();
      await output(
        sandbox,
        "rm -rf /tmp/h /tmp/escaped; mkdir /tmp/h; ln -s /tmp /tmp/h/there; echo kept >/tmp/outside",
      );
      await refused(sandbox.files.writeTree("/tmp/h", archive(...members)), kind);
      assert.equal(
        await output(sandbox, "ls -d /tmp/escaped 2>/dev/null; cat /tmp/outside; stat -c %h /tmp/outside"),
        "kept\n1",
      );
    });
  }

  test("a link that is replaced by a file of the same name is not written through", async () => {
    const sandbox = given();
    await output(sandbox, "echo kept >/tmp/outside");
    const tar = archive({ path: "x", flag: "2", target: "/tmp/outside" }, { path: "x", body: "inside" });
    await sandbox.files.writeTree("/tmp/twice", tar);
    assert.equal(
      await output(sandbox, "cat /tmp/outside /tmp/twice/x; stat -c %F /tmp/twice/x"),
      "kept\ninsideregular file",
    );
  });

  test("an upload that breaks off leaves whole files and no temporary", async () => {
    const sandbox = given();
    const bytes = archive({ path: "whole", body: "w" }, { path: "part", body: Buffer.alloc(2 ** 20, 1) });
    const breaking = (async function* () {
      yield bytes.subarray(0, 600_000);
      throw new Error("the source broke");
    })();
    await assert.rejects(sandbox.files.writeTree("/tmp/cut", breaking));
    await refused(sandbox.files.writeTree("/tmp/cut", bytes.subarray(0, 600_000)), "InvalidArgument", /cut off/);
    // Whoever breaks off does not wait until the sandbox has heard of it.
    assert.equal(
      await output(sandbox, "while ls -A /tmp/cut | grep -q '^[.]'; do sleep 0.05; done; ls -A /tmp/cut"),
      "whole",
    );
  });

  test("a tree that is not there, or may not be read, is refused before any byte", async () => {
    const sandbox = given();
    await refused(drain(sandbox.files.readTree("/none")), "NotFound");
    await sandbox.files.mkdir("/tmp/private", { mode: 0o700 });
    await refused(drain(sandbox.files.readTree("/tmp/private", { user: "1000:1000" })), "PermissionDenied");
  });
}

function sparse(map: string, bytes: number): Buffer {
  const records = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "s",
    "GNU.sparse.realsize": "200",
  };
  const body = Buffer.alloc(512 + bytes);
  body.write(map);
  return Buffer.concat([pax(records), member({ path: "GNUSparseFile.0/s", body })]);
}

async function drain(source: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of source) {
    // Only its end matters.
  }
}

function races(given: Given): void {
  test("a racing swapper of links inside the sandbox leads no upload outside", async () => {
    const sandbox = given();
    await output(sandbox, "mkdir -p /tmp/race/real /tmp/victim");
    // A directory and a link to elsewhere take turns under one name, as fast as a shell can.
    const swapper = await sandbox.start(
      "cd /tmp/race; while :; do mv real held; ln -s /tmp/victim real; rm real; mv held real; done",
    );
    const members: Member[] = Array.from({ length: 40 }, (_, at) => ({ path: `real/f${at}`, body: `${at}` }));
    const ends = new Set<string>();
    for (let round = 0; round < 30; round++) {
      const end = await sandbox.files.writeTree("/tmp/race", archive(...members)).then(
        () => "written",
        (error) => error.kind,
      );
      ends.add(end);
    }
    await swapper.signal("SIGKILL");
    await swapper.wait();
    assert.equal(await output(sandbox, "ls -A /tmp/victim"), "");
    for (const end of ends) assert.match(end, /^(written|InvalidArgument|NotFound|AlreadyExists)$/);
  });
}
