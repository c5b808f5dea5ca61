import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Created, type CreateSandbox, DsecError, type Sandbox } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { BASE, refused } from "../support/sandbox.ts";
import type { ContractBackend } from "./backend.ts";

const MANY = 200;
const SMALL: CreateSandbox = { base: BASE, resources: { memoryMiB: 16, cpus: 0.1, pids: 16 } };

/** Many sandboxes are made, used and removed in one call each, and each has a result of its own. */
export function manyContract(backend: ContractBackend): void {
  describe(`many at once in a ${backend.name}`, { timeout: 900_000 }, () => {
    let node: TestNode;
    before(async () => {
      node = await backend.startNode({
        words: ["--max-sandboxes=220", "--memory-overcommit=8", "--cpu-overcommit=99"],
      });
    });
    after(() => node[Symbol.asyncDispose]());

    library(() => node);
    commandLine(() => node);
    plainHttp(() => node);
  });
}

function library(node: () => TestNode): void {
  test(`${MANY} are made, each runs a command, and all are removed by their label`, async () => {
    const { sandboxes } = node().client;
    const request = { ...SMALL, labels: { set: "many" } };
    const made = await Array.fromAsync(sandboxes.createMany(MANY, request, { concurrency: 32 }));
    assert.deepEqual(made.map(({ index }) => index).toSorted(byNumber), [...Array(MANY).keys()]);
    const all = made.map(sandboxOf);
    assert.equal(new Set(all.map(({ id }) => id)).size, MANY);

    const hosts = new Map<string, string>();
    for await (const ran of sandboxes.runMany(all, ["hostname"])) {
      assert.ok("result" in ran, JSON.stringify(ran));
      hosts.set(ran.sandbox.id, ran.result.stdoutText.trim());
    }
    assert.equal(hosts.size, MANY);
    for (const [id, host] of hosts) assert.equal(host, id);

    const removed = await Array.fromAsync(sandboxes.removeMany({ labels: { set: "many" } }));
    assert.deepEqual(removed.map(({ id }) => id).toSorted(), all.map(({ id }) => id).toSorted());
    assert.deepEqual(
      removed.filter(({ error }) => error !== undefined),
      [],
    );
    await noneLeft(node());
  });

  test("one slow or failing child delays and fails no other", async () => {
    const { sandboxes } = node().client;
    const all = (await Array.fromAsync(sandboxes.createMany(4, SMALL))).map(sandboxOf);
    const [slow, dead] = all;
    assert.ok(slow !== undefined && dead !== undefined);
    await dead.remove();
    await slow.files.write("/slow", new Uint8Array());
    const leave = new AbortController();
    const ended: string[] = [];
    const line = "if [ -e /slow ]; then sleep 600; fi; exit 3";
    const running = (async () => {
      for await (const ran of sandboxes.runMany(all, line, { concurrency: 2, signal: leave.signal })) {
        ended.push("result" in ran ? `code ${ran.result.status.code}` : `${(ran.error as DsecError).kind}`);
        if (ended.length === 3) leave.abort(new Error("the rest is slow"));
      }
    })();
    await assert.rejects(running, /the rest is slow/);
    assert.deepEqual(ended.toSorted(), ["NotFound", "code 3", "code 3"]);
    await Array.fromAsync(sandboxes.removeMany({ ids: all.map(({ id }) => id) }));
    await noneLeft(node());
  });

  test("more than there is room for: those that fit are there, the others say why", async () => {
    const { sandboxes } = node().client;
    const request = { ...SMALL, resources: { ...SMALL.resources, memoryMiB: 100_000_000 } };
    await refused(sandboxes.create(request), "InvalidArgument");
    const made = await Array.fromAsync(sandboxes.createMany(230, SMALL, { concurrency: 64 }));
    const failed = made.flatMap((created) => ("error" in created ? [created.error] : []));
    assert.equal(made.length, 230);
    assert.ok(failed.length >= 10, `${failed.length} failed`);
    for (const error of failed) assert.ok(error instanceof DsecError && error.kind === "NodeFull", `${error}`);
    await Array.fromAsync(
      sandboxes.removeMany({ ids: made.flatMap((one) => ("sandbox" in one ? one.sandbox.id : [])) }),
    );
    await noneLeft(node());
  });

  test("whoever stops early gets nothing that nobody knows of", async () => {
    const { sandboxes } = node().client;
    const kept: string[] = [];
    for await (const created of sandboxes.createMany(60, SMALL, { concurrency: 8 })) {
      kept.push(sandboxOf(created).id);
      if (kept.length === 5) break;
    }
    const there = (await Array.fromAsync(sandboxes.list()))
      .filter(({ state }) => state === "ready")
      .map(({ id }) => id);
    assert.deepEqual(there.toSorted(), kept.toSorted());
    await Array.fromAsync(sandboxes.removeMany({ ids: kept }));
  });

  test("a repeat under the same key finds the sandboxes that are there", async () => {
    const { sandboxes } = node().client;
    const ids = async () => {
      const made = await Array.fromAsync(sandboxes.createMany(6, SMALL, { idempotencyKey: "again" }));
      return made.toSorted((a, b) => a.index - b.index).map((created) => sandboxOf(created).id);
    };
    const first = await ids();
    assert.deepEqual(await ids(), first);
    const { id } = await sandboxes.create(SMALL, { idempotencyKey: "again:0" });
    assert.ok(!first.includes(id), "the key of a single create is another one");
    await Array.fromAsync(sandboxes.removeMany({ ids: [...first, id] }));
  });

  test("numbers that make no sense are refused", async () => {
    const { sandboxes } = node().client;
    for (const count of [-1, 1.5, Number.NaN])
      await refused(sandboxes.createMany(count, SMALL).next(), "InvalidArgument");
    for (const concurrency of [0, -1, Number.NaN]) {
      await refused(sandboxes.createMany(1, SMALL, { concurrency }).next(), "InvalidArgument");
    }
    await refused(sandboxes.removeMany({ labels: {} }).next(), "InvalidArgument");
  });
}

function commandLine(node: () => TestNode): void {
  test("create --count, exec --label and rm --label, with a result for each", async () => {
    const shape = ["--base", BASE, "--memory", "16MiB", "--label", "set=cli"];
    const created = await dsec(node(), ["create", ...shape, "--count", "12", "--concurrency", "4"]);
    assert.equal(created.status, 0, created.stderr);
    const ids = created.stdout.trim().split("\n").toSorted();
    assert.equal(new Set(ids).size, 12);

    const ran = await dsec(node(), ["exec", "--label", "set=cli", "--shell", "--", "hostname; echo two; echo err >&2"]);
    assert.equal(ran.status, 0, ran.stderr);
    const expected = ids.flatMap((id) => [`${id}: ${id}`, `${id}: two`]);
    assert.deepEqual(ran.stdout.trim().split("\n").toSorted(), expected.toSorted());
    assert.equal(ran.stderr.split("\n").filter((line) => /^s\S+: err$/.test(line)).length, 12);

    const json = await dsec(node(), ["--json", "exec", "--label", "set=cli", "--", "sh", "-c", "exit 4"]);
    assert.equal(json.status, 1, "every command ran, and some did not exit with 0");
    const lines = json.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { sandbox: string; status: { code: number } });
    assert.deepEqual(lines.map(({ sandbox }) => sandbox).toSorted(), ids);
    assert.ok(lines.every(({ status }) => status.code === 4));

    const missing = await dsec(node(), ["exec", "--label", "set=cli", "--", "no-such-program"]);
    assert.equal(missing.status, 125);

    const removed = await dsec(node(), ["--json", "rm", "--label", "set=cli"]);
    assert.equal(removed.status, 0, removed.stderr);
    assert.equal((JSON.parse(removed.stdout) as unknown[]).length, 12);
    await noneLeft(node());
  });

  test("create --count tells what failed and is no success then", async () => {
    const words = ["create", "--base", BASE, "--count", "2", "--memory", "1MiB"];
    const { status, stdout, stderr } = await dsec(node(), words);
    assert.deepEqual([status, stdout], [125, ""]);
    assert.match(stderr, /dsec: sandbox 0: .*\n/);
    const json = await dsec(node(), ["--json", ...words]);
    assert.deepEqual(
      json.stdout
        .trim()
        .split("\n")
        .map((line) => Object.keys(JSON.parse(line) as object)),
      [
        ["index", "error"],
        ["index", "error"],
      ],
    );
  });

  test("options that mean nothing by themselves are refused", async () => {
    for (const words of [
      ["create", "--base", BASE, "--concurrency", "2"],
      ["create", "--base", BASE, "--count", "0"],
      ["exec", "--concurrency", "2", "s1-a", "--", "true"],
      ["exec", "--label", "set=nobody", "--", "true"],
      ["exec", "--label", "set=nobody", "--detach", "--", "true"],
      ["rm", "--label", "set=x", "--all"],
    ]) {
      const { status, stderr } = await dsec(node(), words);
      assert.equal(status, 125, words.join(" "));
      assert.match(stderr, /^dsec: /);
    }
  });
}

function plainHttp(node: () => TestNode): void {
  const ask = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${node().url}${path}`, {
      method,
      headers: { authorization: `Bearer ${node().token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    assert.equal(response.status, 200);
    const text = await response.text();
    return text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  };

  test("the same by plain HTTP: a line of JSON for each as it is done", async () => {
    const sandbox = { ...SMALL, labels: { set: "http" } };
    const made = await ask("POST", "/v1/sandboxes/batch", { count: 20, sandbox });
    assert.equal(new Set(made.map(({ sandbox: view }) => (view as { id: string }).id)).size, 20);
    const ran = await ask("POST", "/v1/commands/batch", {
      labels: { set: "http" },
      command: { shell: "sleep 0.1; hostname" },
    });
    assert.equal(ran.length, 20);
    for (const { sandbox: id, command } of ran) {
      const { status, output } = command as { status: { code: number }; output: { stdout: string } };
      assert.deepEqual([status.code, Buffer.from(output.stdout, "base64").toString()], [0, `${id}\n`]);
    }
    assert.equal((await ask("DELETE", "/v1/sandboxes?label=set%3Dhttp")).length, 20);
    await noneLeft(node());
  });
}

function sandboxOf(created: Created): Sandbox {
  assert.ok("sandbox" in created, "error" in created ? created.error.message : "");
  return created.sandbox;
}

async function noneLeft(node: TestNode): Promise<void> {
  assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list()), []);
}

function byNumber(a: number, b: number): number {
  return a - b;
}
