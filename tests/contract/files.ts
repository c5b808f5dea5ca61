import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import type { FileView, Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import type { ContractBackend } from "./backend.ts";

const MEBIBYTE = 2 ** 20;
/** For a hundred thousand files on a disk that others keep busy. */
const REMOVAL_MS = 600_000;
const GONE_MS = 30_000;

/** Files are moved whole, looked at and changed, as the user of the call and under the sandbox's limits. */
export function filesContract(backend: ContractBackend): void {
  describe(`files in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node, { resources: { diskMiB: 64 } });
    });
    after(() => node[Symbol.asyncDispose]());
    const given: Given = () => ({ backend, node, sandbox });

    transfers(given);
    refusals(given);
    changes(given);
    lists(given);
  });
}

type Given = () => { readonly backend: ContractBackend; readonly node: TestNode; readonly sandbox: Sandbox };

function transfers(given: Given): void {
  test("an upload reported as done with nothing written: size and digest come back, and the file has them", async () => {
    const { files } = given().sandbox;
    const bytes = randomBytes(3 * MEBIBYTE + 1);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    assert.deepEqual(await files.write("/tmp/up", pieces(bytes)), { size: bytes.length, sha256 });
    assert.equal(await output(given().sandbox, "sha256sum /tmp/up | cut -c-64"), sha256);
    assert.deepEqual(Buffer.from(await files.read("/tmp/up")), bytes);
  });

  test("a part of a file is read from any offset, and beyond its end there is nothing", async () => {
    const { files } = given().sandbox;
    await files.write("/tmp/part", "0123456789");
    assert.equal(await files.readText("/tmp/part", { offset: 3, length: 4 }), "3456");
    assert.equal(await files.readText("/tmp/part", { offset: 8, length: 100 }), "89");
    assert.equal(await files.readText("/tmp/part", { offset: 11 }), "");
    assert.equal(await files.readText("/tmp/part", { length: 0 }), "");
  });

  test("files buffered in memory whole: a reader that stops stalls the sandbox's side, and may leave", async () => {
    const { files } = given().sandbox;
    await files.write("/tmp/long", pieces(Buffer.alloc(24 * MEBIBYTE, 7)));
    const reading = files.stream("/tmp/long");
    assert.equal((await reading.next()).done, false);
    await reading.return(undefined);
    assert.equal((await files.stat("/tmp/long")).size, 24 * MEBIBYTE);
    await files.remove("/tmp/long");
  });

  test("a file that is cut while it is read ends early, with the digest of what was there", async () => {
    const { sandbox } = given();
    await sandbox.files.write("/tmp/cut", pieces(Buffer.alloc(16 * MEBIBYTE, 1)));
    let size = 0;
    for await (const bytes of sandbox.files.stream("/tmp/cut")) {
      if (size === 0) await output(sandbox, ": >/tmp/cut");
      size += bytes.length;
      assert.ok(bytes.every((byte) => byte === 1));
    }
    assert.ok(size < 16 * MEBIBYTE, `${size}`);
  });

  test("an upload that breaks off leaves the old file, and no temporary", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/broken");
    await sandbox.files.write("/tmp/broken/f", "old");
    const breaking = (async function* () {
      yield randomBytes(MEBIBYTE);
      throw new Error("the source broke");
    })();
    await assert.rejects(sandbox.files.write("/tmp/broken/f", breaking));
    assert.equal(await sandbox.files.readText("/tmp/broken/f"), "old");
    // Whoever breaks off does not wait for what others make of it.
    await waitUntil("the temporary is gone", GONE_MS, async () => (await names(sandbox, "/tmp/broken")).length === 1);
    assert.deepEqual(await names(sandbox, "/tmp/broken"), ["f"]);
  });

  test("a full disk refuses an upload by name, the old file stays, and its room is free again", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/root/full", { parents: true });
    await sandbox.files.write("/root/full/f", "old");
    const more = pieces(Buffer.alloc(80 * MEBIBYTE, 3));
    await assert.rejects(sandbox.files.write("/root/full/f", more), { kind: "SandboxLimit" });
    assert.equal(await sandbox.files.readText("/root/full/f"), "old");
    assert.deepEqual(await names(sandbox, "/root/full"), ["f"]);
    await sandbox.files.write("/root/full/g", pieces(Buffer.alloc(20 * MEBIBYTE, 3)));
    await sandbox.files.remove("/root/full", { recursive: true });
  });
}

function refusals(given: Given): void {
  test("the wrong owner of uploaded files: the user of the call owns what it makes, and has no more than its rights", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/shared", { mode: 0o1777 });
    await sandbox.files.write("/tmp/shared/f", "x", { user: "1234:55", mode: 0o600 });
    const { uid, gid } = await sandbox.files.stat("/tmp/shared/f");
    assert.deepEqual([uid, gid], [1234, 55]);
    await refused(sandbox.files.read("/tmp/shared/f", { user: "77:77" }), "PermissionDenied");
    await refused(sandbox.files.write("/etc/mine", "x", { user: "77:77" }), "PermissionDenied");
    await refused(sandbox.files.chown("/tmp/shared/f", "0:0", { user: "1234:55" }), "PermissionDenied");
  });

  test("what cannot be done is refused by kind and errno, with advice", async () => {
    const { files } = given().sandbox;
    const errnoOf = async (call: Promise<unknown>) => {
      const error = await call.then(
        () => undefined,
        (reason) => reason,
      );
      assert.ok(error?.hint !== undefined, error?.message);
      return [error.kind, error.details.errno];
    };
    await files.write("/tmp/plain", "x");
    assert.deepEqual(await errnoOf(files.read("/none/x")), ["NotFound", "ENOENT"]);
    assert.deepEqual(await errnoOf(files.read("/tmp")), ["InvalidArgument", "EISDIR"]);
    assert.deepEqual(await errnoOf(files.read("/tmp/plain/x")), ["InvalidArgument", "ENOTDIR"]);
    assert.deepEqual(await errnoOf(files.read("/dev/zero")), ["InvalidArgument", "EINVAL"]);
    // Root of a machine may, but there is no place for a file beside it.
    const refusal = given().backend.isWholeMachine === true ? ["NotFound", "ENOENT"] : ["PermissionDenied", "EACCES"];
    assert.deepEqual(await errnoOf(files.write("/proc/version", "x")), refusal);
    assert.deepEqual(await errnoOf(files.list("/tmp/plain")), ["InvalidArgument", "ENOTDIR"]);
    assert.deepEqual(await errnoOf(files.mkdir("/tmp/plain")), ["AlreadyExists", "EEXIST"]);
    await files.mkdir("/tmp/filled");
    await files.write("/tmp/filled/x", "x");
    assert.deepEqual(await errnoOf(files.remove("/tmp/filled")), ["FailedPrecondition", "ENOTEMPTY"]);
    assert.deepEqual(await errnoOf(files.chown("/tmp/plain", "nobody-here")), ["InvalidArgument", "EINVAL"]);
  });

  test("symlinks in the way leak nothing of the host: they lead to files of the sandbox", async () => {
    const { sandbox } = given();
    for (const target of ["/etc/shadow", "../../../../../../etc/shadow", "/proc/1/root/etc/shadow", "/proc/1/cwd/x"]) {
      await sandbox.files.symlink("/tmp/trap", target);
      const inside = await sandbox.run(["cat", "/tmp/trap"]);
      const outside = await sandbox.files.readText("/tmp/trap").catch((error) => error.details.errno);
      if (inside.ok) assert.equal(outside, inside.stdoutText, target);
      else assert.match(outside, /^(ENOENT|EACCES)$/, target);
      await sandbox.files.remove("/tmp/trap");
    }
  });
}

function changes(given: Given): void {
  test("links survive as links, and say what they were told", async () => {
    const { sandbox } = given();
    await sandbox.files.symlink("/tmp/l/link", "no/where", { parents: true });
    const { type, target } = await sandbox.files.stat("/tmp/l/link");
    assert.deepEqual([type, target], ["symlink", "no/where"]);
    await refused(sandbox.files.symlink("/tmp/l/link", "again"), "AlreadyExists");
    await refused(sandbox.files.read("/tmp/l/link"), "NotFound");
  });

  test("a move replaces at once unless told not to, and takes trees along", async () => {
    const { sandbox } = given();
    await sandbox.files.write("/tmp/m/a/deep/f", "1", { parents: true });
    await sandbox.files.write("/tmp/m/b", "2");
    await refused(sandbox.files.move("/tmp/m/a/deep/f", "/tmp/m/b", { replace: false }), "AlreadyExists");
    await sandbox.files.move("/tmp/m/a/deep/f", "/tmp/m/b");
    assert.equal(await sandbox.files.readText("/tmp/m/b"), "1");
    await sandbox.files.move("/tmp/m/a", "/tmp/m/new/place", { parents: true });
    assert.deepEqual(await names(sandbox, "/tmp/m/new/place"), ["deep"]);
  });

  test("mode, owner and time are told as the sandbox has them", async () => {
    const { sandbox } = given();
    await sandbox.files.write("/tmp/told", "x");
    await sandbox.files.chmod("/tmp/told", 0o4750);
    assert.equal((await sandbox.files.stat("/tmp/told")).mode, 0o4750);
    await sandbox.files.chown("/tmp/told", "12:34");
    await output(sandbox, "touch -d @1000000000 /tmp/told");
    const { uid, gid, mtimeMs, mtimeNs } = await sandbox.files.stat("/tmp/told");
    assert.deepEqual([uid, gid, mtimeMs, mtimeNs], [12, 34, 1e12, "1000000000000000000"]);
  });
}

function lists(given: Given): void {
  test("a list has every name, bytes that are no text too, as deep and as hidden as asked", async () => {
    const { sandbox } = given();
    const odd = Buffer.concat([Buffer.from("/tmp/list/"), Buffer.from([0xff, 0x0a])]);
    await sandbox.files.write("/tmp/list/.h/x", "", { parents: true });
    await sandbox.files.write("/tmp/list/a/b/c", "", { parents: true });
    await sandbox.files.write(odd, "");
    const shown = async (options: { depth?: number; hidden?: boolean }) =>
      (await sandbox.files.list("/tmp/list", options)).map(nameOf).sort();
    assert.deepEqual(await shown({}), [".h", "/wo=", "a"]);
    assert.deepEqual(await shown({ depth: 3, hidden: false }), ["/wo=", "a", "a/b", "a/b/c"]);
    assert.deepEqual(await sandbox.files.read(odd), new Uint8Array());
  });

  test("100,000 entries come as they are found, and a reader may leave", async () => {
    const { sandbox } = given();
    await output(sandbox, "mkdir /tmp/many && cd /tmp/many && seq 100000 | xargs touch");
    let count = 0;
    for await (const { type } of sandbox.files.entries("/tmp/many")) if (type === "file") count += 1;
    assert.equal(count, 100_000);
    for await (const _ of sandbox.files.entries("/tmp/many")) break;
    await sandbox.files.remove("/tmp/many", { recursive: true, timeoutMs: REMOVAL_MS });
  });
}

async function names(sandbox: Sandbox, path: string): Promise<string[]> {
  return (await sandbox.files.list(path)).map(nameOf).sort();
}

function nameOf({ name }: FileView): string {
  return typeof name === "string" ? name : name.base64;
}

async function* pieces(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 300_000) yield bytes.subarray(at, at + 300_000);
}
