import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { create, output, refused, startNodeWithBase } from "../support/sandbox.ts";

const text = new TextEncoder();

describe("in a sandbox", () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNodeWithBase();
    sandbox = await create(node);
  });
  after(() => node[Symbol.asyncDispose]());

  test("a command that does not exist is named", () =>
    refused(sandbox.run(["/bin/none"]), "CommandNotFound", /: "\/bin\/none"$/));
  test("a command that is not on the PATH is named", () =>
    refused(sandbox.run(["none"]), "CommandNotFound", /: "none"$/));
  test("a file that is not executable is told apart", async () => {
    await sandbox.files.write("/tmp/plain", text.encode("x"), { mode: 0o644 });
    await refused(sandbox.run(["/tmp/plain"]), "CommandNotExecutable", /: "\/tmp\/plain"$/);
    await refused(sandbox.run(["/tmp"]), "CommandNotExecutable", /: "\/tmp"$/);
    await assert.rejects(sandbox.run(["/tmp/plain"]), { hint: /chmod \+x/ });
  });
  test("a user that the image lacks is named", () =>
    refused(sandbox.run(["id"], { user: "nobodyhome" }), "InvalidArgument", /no such user or group: "nobodyhome"$/));
  test("a folder that does not exist is named", () =>
    refused(sandbox.run(["id"], { cwd: "/none" }), "InvalidArgument", /working directory .*: "\/none"$/));
  for (const timeLimitMs of [0, -1, 1.5]) {
    test(`a time limit of ${timeLimitMs} is refused`, () =>
      refused(sandbox.run(["true"], { timeLimitMs }), "InvalidArgument", /timeLimitMs/));
  }
  test("no arguments at all are refused", () => refused(sandbox.run([]), "InvalidArgument", /argv/));

  test("arguments of 1 MiB arrive whole", async () => {
    const argument = "a".repeat(100_000);
    const result = await sandbox.run([
      "sh",
      "-c",
      'echo "$#" && printf %s "$@" | wc -c',
      "sh",
      ...Array(10).fill(argument),
    ]);
    assert.equal(result.stdoutText.trim(), "10\n1000000");
  });
  test("one argument longer than the kernel takes is a typed error", () =>
    refused(sandbox.run(["true", "a".repeat(1 << 20)]), "InvalidArgument"));

  test("arguments and names that are no UTF-8 stay as they are", async () => {
    const name = Uint8Array.of(0x66, 0xff, 0xfe);
    const result = await sandbox.run(["printf", "%s", name]);
    assert.deepEqual(Buffer.from(result.stdout), Buffer.from(name));
    const path = Uint8Array.of(...text.encode("/tmp/"), ...name);
    await sandbox.files.write(path, text.encode("x"));
    assert.equal(await output(sandbox, "cat /tmp/f*"), "x");
  });

  test("output of any bytes arrives unchanged", async () => {
    const bytes = randomBytes(3 << 20);
    const result = await sandbox.run(["cat"], { stdin: bytes });
    assert.ok(Buffer.from(result.stdout).equals(bytes));
  });

  test("reading what is no file is a typed error", async () => {
    await refused(sandbox.files.read("/none"), "NotFound");
    await refused(sandbox.files.read("/tmp"), "InvalidArgument");
    await sandbox.run("mkfifo /tmp/fifo");
    await refused(sandbox.files.read("/tmp/fifo"), "InvalidArgument");
    await refused(sandbox.files.read("relative"), "InvalidArgument");
  });

  test("writing below a missing folder is refused unless parents are asked for", async () => {
    await refused(sandbox.files.write("/tmp/a/b/c", text.encode("x")), "NotFound");
    await sandbox.files.write("/tmp/a/b/c", text.encode("x"), { parents: true });
    assert.equal(await output(sandbox, "cat /tmp/a/b/c"), "x");
  });

  test("a command that nobody started is not found", async () => {
    await refused(sandbox.command("caaaaaaaaaaaa").info(), "NotFound");
    await refused(sandbox.command("../../x").info(), "NotFound");
  });
});
