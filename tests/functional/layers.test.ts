import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pack } from "tar-stream";
import { readMounts } from "#host/sys/mountinfo.ts";
import type { TestNode } from "../support/node.ts";
import { create, output, refused, startNodeWithBase } from "../support/sandbox.ts";

type Files = Readonly<Record<string, string | Buffer>>;

function tarOf(files: Files): AsyncIterable<Uint8Array> {
  const tar = pack();
  for (const [path, body] of Object.entries(files)) tar.entry({ name: path, mode: 0o755 }, body);
  tar.finalize();
  return tar as AsyncIterable<Uint8Array>;
}

describe("layers of environments", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(() => node[Symbol.asyncDispose]());

  const load = (name: string, kind: "base" | "workspace" | "toolkit", files: Files, at?: string) =>
    node.client.artifacts.import(tarOf(files), { name, kind, ...(at === undefined ? {} : { at }) });

  test("a workspace sits at any path, under the toolkits and over the base", async () => {
    const files = { "src/main": "main", tool: "of the workspace" };
    await load("plain", "workspace", files);
    await load("placed", "workspace", files, "/home/user/the repo");
    await load("tools", "toolkit", { "home/user/the repo/tool": "of the toolkit" });
    await using sandbox = await create(node, { workspace: "placed", toolkits: ["tools"] });
    assert.equal(await output(sandbox, "cd '/home/user/the repo' && cat src/main tool && ls /"), await expected());
    async function expected(): Promise<string> {
      await using bare = await create(node);
      return `mainof the toolkit${await output(bare, "ls /")}`;
    }
  });

  test("a place that is none, or for a base, is refused before anything is uploaded", async () => {
    for (const at of ["relative", "/a/../b", "/proc/x", `/${"n".repeat(256)}`]) {
      await refused(load("bad", "workspace", { a: "b" }, at), "InvalidArgument");
    }
    await refused(load("bad", "base", { a: "b" }, "/repo"), "InvalidArgument", /a base begins at/);
    await refused(node.client.artifacts.info("bad"), "NotFound");
    const source = { type: "git", url: "https://localhost:1/none" } as const;
    const request = { name: "bad", kind: "workspace", source, at: "/sys" } as const;
    await refused(node.client.artifacts.importFrom(request), "InvalidArgument", /cannot begin at/);
  });

  test("a new version of a toolkit is one layer; nothing else on the disk or in the catalogue changes", async () => {
    const shared = randomBytes(3_000_000);
    await load("project", "workspace", { "src/main": randomBytes(100_000) });
    await load("kit", "toolkit", { "opt/kit/version": "1", "opt/kit/data": shared });
    await using old = await create(node, { workspace: "project", toolkits: ["kit"] });
    const before = new Map((await node.client.artifacts.list()).map(({ name, digest }) => [name, digest]));
    const files = filesOf(join(node.dataDir, "images"));
    const { layers } = await load("kit", "toolkit", { "opt/kit/version": "2", "opt/kit/data": shared });

    const after = new Map((await node.client.artifacts.list()).map(({ name, digest }) => [name, digest]));
    assert.deepEqual(
      [...after].filter(([name, digest]) => before.get(name) !== digest).map(([name]) => name),
      ["kit"],
    );
    const now = filesOf(join(node.dataDir, "images"));
    for (const [path, identity] of files) assert.equal(now.get(path), identity, path);
    const added = [...now.keys()].filter((path) => !files.has(path));
    assert.deepEqual(new Set(added.map((path) => path.split("/")[0])), new Set(["layers", "blobs"]));
    assert.equal(added.length, 2 + 3, "the files of one layer and of one blob");
    const addedBytes = added.reduce((sum, path) => sum + statSync(join(node.dataDir, "images", path)).size, 0);
    assert.ok(addedBytes < 100_000, `${addedBytes} bytes for a version of one byte`);

    await using fresh = await create(node, { workspace: "project", toolkits: ["kit"] });
    assert.equal(await output(fresh, "cat /opt/kit/version"), "2");
    assert.equal(await output(old, "cat /opt/kit/version"), "1");
    const mounts = readMounts().filter(({ target }) => target.startsWith(join(node.runDir, "layers")));
    assert.equal(new Set(mounts.map(({ target }) => target)).size, mounts.length, "every layer is mounted once");
    assert.ok(mounts.some(({ target }) => target.endsWith(layers[0]?.slice("sha256:".length) ?? "?")));
  });

  test("an artifact of the same content at two places stores its data once", async () => {
    const files = { data: randomBytes(2_000_000) };
    await load("here", "workspace", files, "/here");
    const blobs = () => readdirSync(join(node.dataDir, "images/blobs")).length;
    const before = blobs();
    await load("there", "workspace", files, "/there");
    assert.equal(blobs(), before);
  });
});

/** Every file of layers and blobs, with what would change if anybody touched it. */
function filesOf(store: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const folder of ["layers", "blobs"]) {
    for (const entry of readdirSync(join(store, folder), { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const { ino, mtimeMs, size } = statSync(path);
      found.set(path.slice(store.length + 1), `${ino} ${mtimeMs} ${size}`);
    }
  }
  return found;
}
