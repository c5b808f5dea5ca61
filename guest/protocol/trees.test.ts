import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { GuestLink, TaskAction } from "#core/guest.ts";
import { encodeTreeData, encodeTreeEnd, encodeTreeFile, encodeTreeMap, type TreeFile } from "#core/tree.ts";
import { forEachBuild, run, TestAgent } from "./testing.ts";

const { EACCES, EBADMSG, ECANCELED, ENOENT, ENOTDIR, ENOTEMPTY } = constants.errno;
const A_FILE: TreeFile = {
  name: Buffer.from("f"),
  type: "file",
  mode: 0o644,
  uid: 0,
  gid: 0,
  size: 0,
  mtimeNs: 7n,
  target: undefined,
};

/** A tree that has one of everything. */
const NASTY = `
mkdir -p sub/deep empty; printf data >file; chmod 4751 file; chown 12:34 file; ln file sub/again; ln -s no/where dangling
mkfifo -m 640 pipe; printf x >"$(printf 'odd\\377\\n')"; truncate -s 3000000 holes; printf middle | dd of=holes bs=1 seek=1000000 conv=notrunc status=none
truncate -s 100000 hole; head -c 200000 /dev/urandom >random; touch -d @-5.5 sub; chmod 500 empty
`;

class Folder implements AsyncDisposable {
  readonly link: GuestLink;
  readonly path: string;
  readonly #agent: TestAgent;

  private constructor(agent: TestAgent, link: GuestLink, path: string) {
    this.#agent = agent;
    this.link = link;
    this.path = path;
  }

  static async make(build: "static" | "asan"): Promise<Folder> {
    const agent = await TestAgent.start({ build });
    return new Folder(agent, await agent.connect(), await mkdtemp(join(tmpdir(), "dsec-trees-")));
  }

  sh(line: string): string {
    return execFileSync("sh", ["-c", line], {
      cwd: this.path,
      encoding: "latin1",
      env: { ...process.env, LC_ALL: "C" },
    });
  }

  async read(
    name: string,
    user = "root",
  ): Promise<{ readonly code: number; readonly bytes: Buffer; readonly said: string }> {
    return this.#run({ type: "read-tree", path: Buffer.from(join(this.path, name)) }, { user });
  }

  async write(name: string, input: Uint8Array): Promise<number> {
    const action: TaskAction = { type: "write-tree", path: Buffer.from(join(this.path, name)), owners: true };
    return (await this.#run(action, { input })).code;
  }

  async #run(action: TaskAction, options: { readonly user?: string; readonly input?: Uint8Array }) {
    const { end, stdout, stderr } = await run(this.link, action, options);
    assert.equal(end.cause, "exited");
    return { code: end.code ?? -1, bytes: stdout, said: stderr.toString("latin1") };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.link.close();
    await this.#agent[Symbol.asyncDispose]();
    await rm(this.path, { recursive: true });
  }
}

/** A whole stream of entries, each with what follows it. */
function stream(
  ...entries: readonly (Partial<TreeFile> & { readonly name: Buffer; readonly rest?: readonly Uint8Array[] })[]
): Buffer {
  const records = entries.flatMap(({ rest = [], ...file }) => [encodeTreeFile({ ...A_FILE, ...file }), ...rest]);
  return Buffer.concat([...records, encodeTreeEnd()]);
}

forEachBuild((build) => {
  describe(`trees of the ${build} agent`, { timeout: 120_000 }, () => {
    test("what is read and written again is the same tree, holes as holes", async () => {
      await using folder = await Folder.make(build);
      folder.sh(`mkdir a && cd a && ${NASTY}`);
      const { code, bytes } = await folder.read("a");
      assert.equal(code, 0);
      assert.ok(bytes.length < 400_000, `${bytes.length}`);
      assert.equal(await folder.write("b", bytes), 0);
      const told = (name: string) =>
        folder.sh(`cd ${name} && find . ! -name . -printf '%p %y %m %U %G %T@ %l %n\\n' | sort`);
      assert.equal(told("b"), told("a"));
      folder.sh("diff -r --no-dereference --exclude=pipe a b");
      assert.ok(Number(folder.sh("stat -c %b b/holes")) <= 16);
    });

    test("a tree is read as the user, and the entry that stops it is named", async () => {
      await using folder = await Folder.make(build);
      folder.sh("chmod 755 . && mkdir -p t/d && printf x >t/d/secret && chmod 600 t/d/secret");
      const { code, said } = await folder.read("t", "nobody");
      assert.deepEqual([code, said], [EACCES, "d/secret"]);
      assert.equal((await folder.read("none")).code, ENOENT);
    });

    test("a tree deeper than 256 levels is refused, one that deep is not", async () => {
      await using folder = await Folder.make(build);
      folder.sh(`mkdir -p ${"t/".repeat(256)}`);
      assert.equal((await folder.read("t")).code, 0);
      folder.sh(`mkdir -p ${"t/".repeat(258)}`);
      assert.equal((await folder.read("t")).code, constants.errno.ENAMETOOLONG);
    });

    test("streams that break the rules are refused and leave no temporary", async () => {
      await using folder = await Folder.make(build);
      const name = Buffer.from("f");
      const data = encodeTreeData(Buffer.from("12345"));
      const bad: readonly (readonly [number, Uint8Array])[] = [
        [EBADMSG, Buffer.alloc(64, 0xff)],
        [EBADMSG, stream({ name, size: 4, rest: data })],
        [EBADMSG, stream({ name, size: 6, rest: data })],
        [EBADMSG, stream({ name, type: "directory", rest: data })],
        [EBADMSG, stream({ name, size: 5, rest: [...data, ...encodeTreeMap([])] })],
        [EBADMSG, stream({ name, size: 9, rest: encodeTreeMap([{ offset: 5, size: 5 }]) })],
        [
          EBADMSG,
          stream({
            name,
            size: 9,
            rest: encodeTreeMap([
              { offset: 5, size: 1 },
              { offset: 3, size: 1 },
            ]),
          }),
        ],
        [EBADMSG, stream({ name: Buffer.from("../f") })],
        [EBADMSG, stream({ name: Buffer.from("a/./f") })],
        [EBADMSG, stream({ name, type: "link", target: Buffer.from("/etc/passwd") })],
        [EBADMSG, Buffer.concat([stream({ name }), Buffer.from("more")])],
        [ECANCELED, encodeTreeFile({ ...A_FILE, size: 5 })],
        [ECANCELED, Buffer.alloc(0)],
      ];
      for (const [at, [code, bytes]] of bad.entries()) assert.equal(await folder.write(`t${at}`, bytes), code, `${at}`);
      assert.equal(folder.sh("find . -name '.dsec*'"), "");
    });

    test("no entry is put through a link or over a full directory", async () => {
      await using folder = await Folder.make(build);
      folder.sh("mkdir -p t/full/x out && printf kept >out/f && ln -s ../out t/link");
      const through = stream({ name: Buffer.from("link/f"), size: 5, rest: encodeTreeData(Buffer.from("12345")) });
      assert.equal(await folder.write("t", through), ENOTDIR);
      assert.equal(
        await folder.write("t", stream({ name: Buffer.from("h"), type: "link", target: Buffer.from("link/f") })),
        ENOTDIR,
      );
      assert.equal(await folder.write("t", stream({ name: Buffer.from("full"), type: "fifo" })), ENOTEMPTY);
      assert.equal(folder.sh("cat out/f; stat -c %h out/f"), "kept1\n");
    });
  });
});
