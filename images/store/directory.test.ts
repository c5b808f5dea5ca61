import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { changeMount, MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { directoryStore } from "./directory.ts";
import { objectStoreContract, type StoreRig } from "./object-store-suite.ts";
import { bytesOf, contentOf } from "./test-support/content.ts";

const live = () => AbortSignal.timeout(60_000);

async function makeRig(): Promise<StoreRig> {
  const directory = temporaryDirectory();
  const incoming = join(directory.path, ".incoming");
  return {
    open: () => directoryStore(directory.path),
    file: (key) => join(directory.path, key),
    leftovers: async () => readdirSync(incoming),
    async putAndDie(key, sizeBytes) {
      dieIn(`directoryStore(${JSON.stringify(directory.path)})`, key, sizeBytes);
      // Those of a dead node go with their age; see below.
      for (const name of readdirSync(incoming)) utimesSync(join(incoming, name), 1, 1);
    },
    async [Symbol.asyncDispose]() {
      directory[Symbol.dispose]();
    },
  };
}

function dieIn(store: string, key: string, sizeBytes: number): void {
  const script = `
    import { directoryStore } from "${import.meta.dirname}/directory.ts";
    async function* open() {
      yield Buffer.alloc(${sizeBytes / 2});
      process.kill(process.pid, "SIGKILL");
    }
    const content = { sizeBytes: ${sizeBytes}, sha256: "", open };
    await ${store}.put(${JSON.stringify(key)}, content, AbortSignal.timeout(60_000));`;
  const args = ["--input-type=module", "-e", script];
  assert.throws(() => execFileSync(process.execPath, args, { stdio: "ignore" }), { signal: "SIGKILL" });
}

objectStoreContract("a directory", makeRig);

describe("a directory as a store", () => {
  test("is read in place", async () => {
    using directory = temporaryDirectory();
    await using store = directoryStore(directory.path);
    await store.put("a/b", contentOf("here"), live());
    assert.equal(store.path("a/b"), join(directory.path, "a/b"));
  });

  test("whose file system is not mounted is Unavailable, and nothing is written below its mount point", async () => {
    using directory = temporaryDirectory();
    const at = join(directory.path, "store");
    await using store = directoryStore(at);
    await assert.rejects(store.probe(live()), { kind: "Unavailable" });
    mkdirSync(at);
    mount("tmpfs", at, "tmpfs", 0, "size=4m");
    try {
      await store.put("a", contentOf("x"), live());
    } finally {
      unmount(at);
    }
    await assert.rejects(bytesOf(store.get("a", undefined, live())), { kind: "Unavailable" });
    await assert.rejects(store.head("a", live()), { kind: "Unavailable" });
    await assert.rejects(store.put("b", contentOf("y"), live()), { kind: "Unavailable" });
    assert.deepEqual(readdirSync(at), []);
  });

  test("that goes while something is put into it is Unavailable, and not made anew", async () => {
    using directory = temporaryDirectory();
    const at = join(directory.path, "store");
    mkdirSync(at);
    await using store = directoryStore(at);
    const { sizeBytes, sha256 } = contentOf("x");
    async function* open() {
      renameSync(at, `${at}.away`);
      yield Buffer.from("x");
    }
    await assert.rejects(store.put("a/b", { sizeBytes, sha256, open }, live()), { kind: "Unavailable" });
    assert.ok(!existsSync(at));
  });

  test("that holds other things is refused and left alone", async () => {
    using directory = temporaryDirectory();
    writeFileSync(join(directory.path, "thesis.txt"), "mine");
    await using store = directoryStore(directory.path);
    await assert.rejects(store.put("a", contentOf("x"), live()), { kind: "FailedPrecondition" });
    assert.deepEqual(readdirSync(directory.path), ["thesis.txt"]);
  });

  test("that is full answers StorageFull, keeps nothing, and takes what fits after", async () => {
    using directory = temporaryDirectory();
    mount("tmpfs", directory.path, "tmpfs", 0, "size=1m");
    try {
      await using store = directoryStore(directory.path);
      const big = contentOf(Buffer.alloc(3 * 2 ** 20, 1), 2 ** 16);
      await assert.rejects(store.put("big", big, live()), { kind: "StorageFull" });
      await store.put("small", contentOf("x"), live());
      assert.deepEqual(readdirSync(join(directory.path, ".incoming")), []);
    } finally {
      unmount(directory.path);
    }
  });

  test("that cannot be written says PermissionDenied and is still read", async () => {
    using directory = temporaryDirectory();
    await directoryStore(directory.path).put("a", contentOf("x"), live());
    mount(directory.path, directory.path, "", MS.BIND);
    try {
      changeMount(directory.path, MS.REMOUNT | MS.BIND | MS.RDONLY);
      await using store = directoryStore(directory.path);
      await assert.rejects(store.put("b", contentOf("y"), live()), { kind: "PermissionDenied" });
      assert.equal((await bytesOf(store.get("a", undefined, live()))).toString(), "x");
    } finally {
      // What was read is closed behind its reader.
      unmount(directory.path, MNT.DETACH);
    }
  });

  test("loses what a dead node left on its way in, and not what a living one is putting", async () => {
    using directory = temporaryDirectory();
    await directoryStore(directory.path).probe(live());
    const incoming = join(directory.path, ".incoming");
    for (const name of ["dead", "living"]) writeFileSync(join(incoming, name), "half");
    const twoDaysAgo = Date.now() / 1000 - 2 * 24 * 3600;
    utimesSync(join(incoming, "dead"), twoDaysAgo, twoDaysAgo);
    await directoryStore(directory.path).probe(live());
    assert.deepEqual(readdirSync(incoming), ["living"]);
  });
});
