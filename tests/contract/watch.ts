import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import type { Sandbox, WatchView } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

/** Processes of the sandbox. */
const COUNT = "ls /proc | grep -c '^[0-9]'";
const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");

/** A watch tells what happens to files, from its first event on and without a hole. */
export function watchContract(backend: ContractBackend): void {
  describe(`watching files in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let sandbox: Sandbox;
    before(async () => {
      node = await backend.startNode();
      sandbox = await backend.create(node);
    });
    after(() => node[Symbol.asyncDispose]());
    const given: Given = () => ({ node, sandbox });

    events(given);
    forms(given);
  });
}

type Given = () => { readonly node: TestNode; readonly sandbox: Sandbox };

/** What a watch tells while `line` runs, up to the event about the file `end` that is made last. */
async function told(sandbox: Sandbox, path: string, line: string, recursive = true): Promise<string[]> {
  const found: string[] = [];
  for await (const event of sandbox.files.watch(path, { recursive })) {
    if (event.type === "ready") await output(sandbox, `cd ${path} && ${line}; touch ${path}/end`);
    else if (event.path === "end" && event.type === "created") return found;
    else found.push(textOf(event));
  }
  throw new Error("the watch ended");
}

function textOf({ type, path, from, directory }: WatchView): string {
  const name = (value: WatchView["path"]) =>
    `${typeof value === "object" ? value.base64 : value}${directory ? "/" : ""}`;
  if (path === undefined) return type;
  return from === undefined ? `${type} ${name(path)}` : `${type} ${name(from)} ${name(path)}`;
}

function events(given: Given): void {
  test("files made, changed, moved, dressed and removed are told in order, with directories below", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/w/sub", { parents: true });
    const line = "echo x >sub/f; mv sub/f g; chmod 600 g; mv g sub; mkdir d; rmdir d";
    assert.deepEqual(await told(sandbox, "/tmp/w", line), [
      "created sub/f",
      "modified sub/f",
      "moved sub/f g",
      "attributes g",
      "moved g sub/g",
      "created d/",
      "removed d/",
    ]);
  });

  test("a file that a call writes is told of when it has its name, and one that is called like the nameless always", async () => {
    const { sandbox } = given();
    const { files } = sandbox;
    await files.mkdir("/tmp/put");
    const found: string[] = [];
    for await (const event of files.watch("/tmp/put")) {
      if (event.type === "ready") {
        await files.write("/tmp/put/f", "x");
        await files.write("/tmp/put/f", "another's place");
        await output(sandbox, "cd /tmp/put; echo x >'#7'; touch end");
      } else if (event.path === "end") break;
      else found.push(textOf(event));
    }
    assert.deepEqual(found, ["created f", "created f", "created #7", "modified #7"]);
  });

  test("without recursion only the directory itself is told of", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/flat/sub", { parents: true });
    const lines = await told(sandbox, "/tmp/flat", "touch sub/f; mkdir d; touch d/f; mkdir own", false);
    assert.deepEqual(lines, ["created d/", "created own/"]);
  });

  test("a directory that is made, filled and moved at once is told of without a hole", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/deep");
    const lines = await told(
      sandbox,
      "/tmp/deep",
      "mkdir -p a/b/c/d && touch a/b/c/d/f && mv a/b z && touch z/c/d/g && mkdir -p z/n/m && touch z/n/m/h",
    );
    for (const path of ["a/", "z/c/d/g", "z/n/m/h"])
      assert.ok(lines.includes(`created ${path}`), `${path}: ${lines.join()}`);
    assert.ok(
      lines.some((line) => /^(created|moved) .*d\/f$/.test(line) || line === "moved a/b/ z/"),
      lines.join(),
    );
  });

  test("what is moved out is removed and told of no more; what is moved in comes with all it holds", async () => {
    const { sandbox } = given();
    await output(sandbox, "mkdir -p /tmp/io/out/x /tmp/elsewhere/in/y; touch /tmp/elsewhere/in/y/f");
    const lines = await told(
      sandbox,
      "/tmp/io",
      "mv out /tmp/gone; touch /tmp/gone/x/late; mv /tmp/elsewhere/in .; touch in/y/g",
    );
    assert.deepEqual(lines.slice(0, 3), ["removed out/", "created in/", "created in/y/"]);
    // What it holds, and what comes while that is looked through, come in any order, perhaps twice.
    assert.deepEqual([...new Set(lines.slice(3))].sort(), ["created in/y/f", "created in/y/g"]);
  });

  test("names are bytes", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/odd");
    const lines = await told(sandbox, "/tmp/odd", "touch \"$(printf 'f\\377')\"");
    assert.deepEqual(lines, ["created Zv8="]);
  });

  test("a watch ends when what it watches is gone, and when its reader goes", async () => {
    const { sandbox } = given();
    await sandbox.files.mkdir("/tmp/short");
    const found: string[] = [];
    for await (const event of sandbox.files.watch("/tmp/short")) {
      found.push(textOf(event));
      if (event.type === "ready") await sandbox.files.remove("/tmp/short");
    }
    assert.deepEqual([found[0], found.at(-1)], ["ready", "removed /"]);
    const before = await output(sandbox, COUNT);
    await sandbox.files.mkdir("/tmp/left");
    for await (const _ of sandbox.files.watch("/tmp/left")) break;
    for (let tries = 0; (await output(sandbox, "ls /proc | grep -c '^[0-9]'")) !== before; tries++)
      assert.ok(tries < 500);
  });

  test("one file is watched by itself", async () => {
    const { sandbox } = given();
    await sandbox.files.write("/tmp/one-file", "x");
    const found: string[] = [];
    for await (const event of sandbox.files.watch("/tmp/one-file")) {
      found.push(textOf(event));
      if (event.type === "ready") await output(sandbox, "echo y >>/tmp/one-file; rm /tmp/one-file");
    }
    assert.ok(found.includes("modified ") && found.at(-1)?.startsWith("removed "), found.join());
  });

  test("what cannot be watched is refused before any event", async () => {
    const { sandbox } = given();
    await refused(sandbox.files.watch("/none").next(), "NotFound");
    await sandbox.files.mkdir("/tmp/closed", { mode: 0o700 });
    await refused(sandbox.files.watch("/tmp/closed", { user: "1000:1000" }).next(), "PermissionDenied");
  });
}

function forms(given: Given): void {
  test("curl gets lines of JSON, or events where it asks for them", async () => {
    const { node, sandbox } = given();
    await sandbox.files.mkdir("/tmp/curl");
    for (const [accept, first] of [
      ["application/x-ndjson", '{"type":"ready"}\n'],
      ["text/event-stream", 'event: message\ndata: {"type":"ready"}\n\n'],
    ]) {
      const reply = await fetch(`${node.url}/v1/sandboxes/${sandbox.id}/files/watch?path=/tmp/curl`, {
        headers: { authorization: `Bearer ${node.token}`, accept: accept ?? "" },
      });
      assert.equal(reply.headers.get("content-type"), accept);
      const reader = reply.body?.getReader();
      assert.equal(Buffer.from((await reader?.read())?.value ?? []).toString(), first);
      await reader?.cancel();
    }
  });

  test("dsec watch prints a line an event, and ends with what it watches", async () => {
    const { node, sandbox } = given();
    await sandbox.files.mkdir("/tmp/cli");
    const child = spawn(process.execPath, [ENTRY, "watch", "-r", sandbox.id, "/tmp/cli"], {
      env: { ...process.env, ...node.env },
    });
    const ended = once(child, "close");
    const lines: string[] = [];
    for await (const line of createInterface({ input: child.stdout })) {
      lines.push(line);
      if (line === "ready") await output(sandbox, "cd /tmp/cli && mkdir d && mv d e && cd / && rm -r /tmp/cli");
    }
    assert.deepEqual((await ended)[0], 0);
    assert.deepEqual(lines, ["ready", "created d/", "moved d/ -> e/", "removed e/", "removed /"]);
  });
}
