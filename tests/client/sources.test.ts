import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { archive } from "#core/tar/test-support/fixtures.ts";
import { deb } from "#images/test-support/deb.ts";
import { makeRepository, serveOverHttp } from "#images/test-support/git.ts";
import { ociArchive } from "#images/test-support/oci-archive.ts";
import { startRegistry } from "#images/test-support/registry.ts";
import { Client } from "#sdk";
import { dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { tokenOfNew } from "../support/projects.ts";

describe("importing from elsewhere, through a real node", { timeout: 900_000 }, () => {
  let node: TestNode;
  let folder = "";
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "dsec-sources-"));
    node = await startNode();
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    await node?.[Symbol.asyncDispose]();
  });

  test("an image of a locked registry comes with the credentials of a file, by CLI and by SDK", async () => {
    await using registry = await startRegistry({ locked: true });
    const image = `${registry.host}/team/tools:v1`;
    registry.push(ociArchive([{ layers: [archive({ path: "opt/tool", body: "tool" })] }]), "team/tools:v1");
    const authFile = join(folder, "auth.json");
    const auth = Buffer.from("user:secret").toString("base64");
    writeFileSync(authFile, JSON.stringify({ auths: { [`${registry.host}/team`]: { auth } } }));
    const words = ["image", "import", `docker://${image}`, "tools", "--kind", "toolkit", "--insecure"];
    const refused = await dsec(node, words);
    assert.equal(refused.status, 125);
    assert.match(refused.stderr, /credentials/);
    const done = await dsec(node, [...words, "--auth-file", authFile]);
    assert.equal(done.status, 0, done.stderr);
    assert.equal(done.stdout, "tools:latest\n");
    assert.match(done.stderr, /layer 1 of 1/);
    const credentials = { username: "user", password: "secret" };
    const lines: string[] = [];
    const again = await node.client.artifacts.importFrom(
      { name: "again", kind: "toolkit", source: { type: "registry", image, insecure: true, credentials } },
      { onProgress: (line) => lines.push(line) },
    );
    const first = await node.client.artifacts.info("tools");
    assert.deepEqual(again.layers, first.layers);
    assert.match(again.provenance, /^docker:\/\/.*team\/tools:v1@sha256:/);
    assert.ok(lines.length > 0 && !JSON.stringify([again, lines, node.log]).includes("secret"));
    await assert.rejects(
      node.client.artifacts.importFrom({
        name: "none",
        kind: "base",
        source: { type: "registry", image: `${registry.host}/none`, insecure: true, credentials },
      }),
      { kind: "NotFound" },
    );
  });

  test("a git revision comes from a server, and from a repository of this machine, to the same layer", async () => {
    const { path, commits } = makeRepository(folder, "project");
    await using server = await serveOverHttp(folder);
    const fetched = await dsec(node, ["image", "import", `git+${server.url}/project#v1`, "fetched", "--json"]);
    assert.equal(fetched.status, 0, fetched.stderr);
    const view = JSON.parse(fetched.stdout);
    assert.deepEqual([view.kind, view.provenance], ["workspace", `git ${server.url}/project ${commits[0]}`]);
    const sent = await dsec(node, ["image", "import", `git:${path}#v1`, "sent", "--json"]);
    assert.equal(sent.status, 0, sent.stderr);
    assert.deepEqual(JSON.parse(sent.stdout).layers, view.layers);
    assert.equal(JSON.parse(sent.stdout).kind, "workspace");
    for (const [word, message] of [
      [`git:${path}#nothing`, /nothing/],
      [`git:${folder}/missing`, /cannot read/],
      [`git:${path}#--output=x`, /names no revision/],
    ] as const) {
      const bad = await dsec(node, ["image", "import", word, "bad"]);
      assert.equal(bad.status, 125);
      assert.match(bad.stderr, message);
    }
    assert.equal((await dsec(node, ["image", "info", "bad"])).status, 125);
  });

  test("what a member asks for comes through the gateway: not from this machine, unless the operator opened it", async () => {
    makeRepository(folder, "inside");
    await using server = await serveOverHttp(folder);
    await using registry = await startRegistry();
    registry.push(ociArchive([{ layers: [archive({ path: "opt/tool", body: "tool" })] }]), "tool:v1");
    const git = { type: "git", url: `${server.url}/inside` } as const;
    const sources = [git, { type: "registry", image: `${registry.host}/tool:v1`, insecure: true }] as const;
    const importing = async (one: TestNode, source: (typeof sources)[number]) => {
      using member = new Client({ url: one.url, token: await tokenOfNew(one, `members-of-${source.type}`) });
      return await member.artifacts.importFrom({ name: "fetched", kind: "workspace", source });
    };
    for (const source of sources) {
      await assert.rejects(importing(node, source), { kind: "PermissionDenied" }, source.type);
    }
    assert.match(
      (await node.client.artifacts.importFrom({ name: "of-root", kind: "workspace", source: git })).provenance,
      /inside/,
    );
    await using open = await startNode({ words: ["--fetch-networks=127.0.0.1"] });
    assert.match((await importing(open, git)).provenance, /inside/);
    assert.equal((await open.client.artifacts.list()).length, 0, "it belongs to the member's project");
  });

  test("a Debian package of this machine becomes a toolkit, by CLI and by SDK", async () => {
    await node.client.artifacts.build({ name: "bb", suite: "host-busybox" });
    const script = { path: "./bin/greet", mode: 0o755, body: "#!/bin/sh\necho hello\n" };
    const bytes = deb({ name: "greet", data: archive({ path: "./bin/", flag: "5", mode: 0o755 }, script) });
    const file = join(folder, "greet.deb");
    writeFileSync(file, bytes);
    const done = await dsec(node, ["image", "import", file, "greet", "--json"]);
    assert.equal(done.status, 0, done.stderr);
    const view = JSON.parse(done.stdout);
    assert.deepEqual([view.kind, view.provenance], ["toolkit", "deb upload"]);
    const again = await node.client.artifacts.import(bytes, { name: "again", kind: "toolkit", format: "deb" });
    assert.deepEqual(again.layers, view.layers);
    await using sandbox = await node.client.sandboxes.create({ base: "bb", toolkits: ["greet"] });
    assert.equal((await sandbox.run(["/usr/bin/greet"])).stdoutText, "hello\n");
    const bad = await dsec(node, ["image", "import", file, "bad", "--kind", "base"]);
    assert.equal(bad.status, 125);
    assert.match(bad.stderr, /make no base/);
    assert.equal((await dsec(node, ["image", "info", "bad"])).status, 125);
  });

  test("an artifact goes out as an archive that skopeo reads, and into a registry, and comes back the same", async () => {
    const image = await node.client.artifacts.build({ name: "bb", suite: "host-busybox" });
    const file = join(folder, "bb.tar");
    const written = await dsec(node, ["image", "export", "bb", "-o", file, "--compression", "zstd"]);
    assert.equal(written.status, 0, written.stderr);
    assert.match(execFileSync("skopeo", ["inspect", `oci-archive:${file}:bb:latest`]).toString(), /"Layers"/);
    const streamed = await Array.fromAsync(node.client.artifacts.export("bb", { compression: "zstd" }));
    assert.ok(readFileSync(file).equals(Buffer.concat(streamed)));
    const again = await dsec(node, ["image", "import", file, "again", "--json"]);
    assert.deepEqual(JSON.parse(again.stdout).config, image.config);
    const repeated = await Array.fromAsync(node.client.artifacts.export("again", { compression: "zstd" }));
    // But for the name in its index it is the same archive, of the same layers.
    assert.ok(Buffer.concat(repeated).subarray(8192).equals(readFileSync(file).subarray(8192)));
    await using registry = await startRegistry();
    const to = `docker://${registry.host}/bb:v1`;
    const sent = await dsec(node, ["image", "export", "bb", "--to", to, "--insecure"]);
    assert.deepEqual([sent.status, sent.stdout], [0, `${to}\n`], sent.stderr);
    const back = await dsec(node, ["image", "import", to, "back", "--insecure", "--json"]);
    assert.deepEqual(JSON.parse(back.stdout).layers, JSON.parse(again.stdout).layers);
    const sandbox = await node.client.sandboxes.create({ base: "back" });
    assert.equal((await sandbox.run(["busybox", "echo", "hello"])).stdout.toString(), "hello\n");
    for (const words of [
      ["bb"],
      ["bb", "-o", "x", "--to", to],
      ["bb", "--to", "x"],
      ["none", "-o", join(folder, "none.tar")],
    ]) {
      assert.equal((await dsec(node, ["image", "export", ...words])).status, 125, words.join(" "));
    }
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.startsWith("none")),
      [],
    );
  });

  test("options that mean nothing for a source are refused by name", async () => {
    for (const [source, option] of [
      ["docker://x", "--format=tar"],
      ["git+https://example.org/x", "--insecure"],
      [".", "--auth-file=x"],
      ["apt:jq", "--format=deb"],
      ["apt:jq#bookworm", "--insecure"],
    ] as const) {
      const refused = await dsec(node, ["image", "import", source, "x", option]);
      assert.equal(refused.status, 125);
      assert.match(refused.stderr, new RegExp(option.split("=")[0] ?? ""));
    }
  });

  test("a request that names no source that there is is refused before anything is made", async () => {
    const call = (source: unknown) =>
      fetch(`${node.url}/v1/artifacts/import-from`, {
        method: "POST",
        headers: { authorization: `Bearer ${node.token}`, "content-type": "application/json" },
        body: JSON.stringify({ name: "x", kind: "base", source }),
      });
    const packages = [{ type: "apt", packages: [] }, { type: "apt", packages: ["-o"] }, { type: "apt" }];
    for (const source of [
      ...packages,
      undefined,
      {},
      { type: "ftp" },
      { type: "git" },
      { type: "registry", image: "x", more: 1 },
    ]) {
      assert.equal((await call(source)).status, 400, JSON.stringify(source));
    }
  });
});
