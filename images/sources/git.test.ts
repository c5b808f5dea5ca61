import assert from "node:assert/strict";
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { LayerStore } from "../store.ts";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { git, makeRepository, serveOverGit, serveOverHttp } from "../test-support/git.ts";
import { fsck, mounted } from "../test-support/inspect.ts";
import { importFrom } from "./import-from.ts";
import type { GitSource } from "./source.ts";

function fetchTree(store: LayerStore, source: Omit<GitSource, "type">): ReturnType<typeof importFrom> {
  const { signal } = new AbortController();
  const registries = { authFile: undefined, registriesFile: undefined };
  const context = { store, kind: "workspace", registries, signal, progress: () => undefined } as const;
  return importFrom({ type: "git", ...source }, context);
}

function assertNothingLeft(store: LayerStore): void {
  assert.deepEqual([...readdirSync(join(store.dir, "layers")), ...readdirSync(join(store.dir, "tmp"))], []);
}

describe("importing a git revision", () => {
  test("brings the files of the head, a branch, a tag and a commit, without history, over HTTP and git's protocol", async () => {
    using made = await temporaryStore();
    using root = temporaryDirectory();
    const { commits } = makeRepository(root.path, "project");
    await using http = await serveOverHttp(root.path);
    await using own = await serveOverGit(root.path);
    const head = await fetchTree(made.store, { url: `${http.url}/project/.git` });
    assert.equal(head.provenance, `git ${http.url}/project/.git ${commits[1]}`);
    using layer = await mounted(made.store, head.layers[0] ?? assert.fail("no layer"));
    await fsck(made.store, head.layers[0] ?? assert.fail("no layer"));
    assert.deepEqual(readdirSync(layer.path).sort(), [".gitattributes", "link", "src", "stamp", "tool"]);
    assert.equal(readFileSync(join(layer.path, "src/file"), "utf8"), "two\n");
    assert.equal(readFileSync(join(layer.path, "stamp"), "utf8"), `${commits[1]}\n`);
    assert.equal(readlinkSync(join(layer.path, "link")), "src/file");
    const tool = lstatSync(join(layer.path, "tool"));
    assert.deepEqual([tool.mode, tool.uid, tool.mtimeMs], [0o100755, 0, Date.UTC(2024, 0, 2, 3, 4, 5)]);
    const named = await Promise.all([
      fetchTree(made.store, { url: `${own.url}/project`, revision: "main" }),
      fetchTree(made.store, { url: `${http.url}/project`, revision: commits[1] }),
    ]);
    assert.deepEqual(
      named.map(({ layers }) => layers),
      [head.layers, head.layers],
    );
    const tagged = await fetchTree(made.store, { url: `${http.url}/project`, revision: "v1" });
    assert.ok(tagged.provenance.endsWith(commits[0] ?? "?"));
    assert.notDeepEqual(tagged.layers, head.layers);
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("runs nothing that a repository brings: hooks, filters, programs named in attributes", async () => {
    using made = await temporaryStore();
    using root = temporaryDirectory();
    const { path } = makeRepository(root.path, "project");
    const mark = join(root.path, "ran");
    writeFileSync(join(path, ".gitattributes"), "* filter=evil diff=evil export-subst\n");
    writeFileSync(join(path, ".gitmodules"), `[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch ${mark}"\n`);
    writeFileSync(join(path, "stamp"), "$Format:%G?%GG$\n");
    writeFileSync(
      join(path, ".gitconfig"),
      `[core]\n\tfsmonitor = touch ${mark}\n[filter "evil"]\n\tsmudge = touch ${mark}\n`,
    );
    git(path, "add", ".");
    git(path, "commit", "--quiet", "-m", "evil");
    await using server = await serveOverHttp(root.path);
    await fetchTree(made.store, { url: `${server.url}/project` });
    assert.ok(!existsSync(mark));
  });

  test("gets in with credentials alone, and shows them to nobody", async () => {
    using made = await temporaryStore();
    using root = temporaryDirectory();
    makeRepository(root.path, "project");
    await using server = await serveOverHttp(root.path, `Basic ${Buffer.from("me:s3cret-word").toString("base64")}`);
    const url = `${server.url}/project`;
    await assert.rejects(fetchTree(made.store, { url }), { kind: "PermissionDenied" });
    const credentials = { username: "me", password: "s3cret-word" };
    const imported = await fetchTree(made.store, { url, credentials });
    assert.ok(!JSON.stringify(imported).includes("s3cret"));
    const inUrl = `http://me:s3cret-word@${new URL(url).host}/project`;
    await assert.rejects(fetchTree(made.store, { url: inUrl }), (error: Error) => !error.message.includes("s3cret"));
  });

  test("what is not there and what is no address are told apart, and leave nothing", async () => {
    using made = await temporaryStore();
    using root = temporaryDirectory();
    makeRepository(root.path, "project");
    await using server = await serveOverHttp(root.path);
    const url = `${server.url}/project`;
    await assert.rejects(fetchTree(made.store, { url, revision: "nothing" }), { kind: "NotFound" });
    await assert.rejects(fetchTree(made.store, { url, revision: "0".repeat(40) }), { kind: "NotFound" });
    await assert.rejects(fetchTree(made.store, { url: `${server.url}/nothing` }), { kind: "NotFound" });
    await assert.rejects(fetchTree(made.store, { url: "http://127.0.0.1:1/x" }), { kind: "Unavailable" });
    const addresses = [
      root.path,
      `file://${root.path}/project`,
      "ext::sh -c id",
      "ssh://host/x",
      "-u",
      "",
      "https://",
      "http://a b/",
    ];
    for (const bad of addresses)
      await assert.rejects(fetchTree(made.store, { url: bad }), { kind: "InvalidArgument" }, bad);
    for (const bad of ["", "-x", "--upload-pack=id", "a..b", "a:b", "@{1}", "a b", "main\n", "x".repeat(300)]) {
      await assert.rejects(fetchTree(made.store, { url, revision: bad }), { kind: "InvalidArgument" }, bad);
    }
    assertNothingLeft(made.store);
  });
});
