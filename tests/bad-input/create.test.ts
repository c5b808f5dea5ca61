import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CreateSandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BASE, create, refused, startNodeWithBase } from "../support/sandbox.ts";

describe("a create", () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithBase();
  });
  after(async () => {
    const left = await Array.fromAsync(node.client.sandboxes.list());
    await node[Symbol.asyncDispose]();
    assert.deepEqual(left, [], "a refused create has left a sandbox");
  });

  const cases: readonly (readonly [string, Readonly<Record<string, unknown>>, string, RegExp])[] = [
    ["an unknown base", { base: "nowhere" }, "NotFound", /nowhere/],
    ["an unknown workspace", { workspace: "nowhere" }, "NotFound", /nowhere/],
    ["an unknown toolkit", { toolkits: ["nowhere"] }, "NotFound", /nowhere/],
    ["a base as a workspace", { workspace: BASE }, "InvalidArgument", /workspace/],
    ["memory of nothing", { resources: { memoryMiB: 0 } }, "InvalidArgument", /memoryMiB/],
    ["negative memory", { resources: { memoryMiB: -1 } }, "InvalidArgument", /memoryMiB/],
    ["memory that is no number", { resources: { memoryMiB: "much" } }, "InvalidArgument", /memoryMiB/],
    ["memory of NaN, which JSON makes null", { resources: { memoryMiB: Number.NaN } }, "InvalidArgument", /memoryMiB/],
    ["a fraction of a MiB", { resources: { memoryMiB: 1.5 } }, "InvalidArgument", /memoryMiB/],
    ["no processor time", { resources: { cpus: 0 } }, "InvalidArgument", /cpus/],
    ["no processes", { resources: { pids: 0 } }, "InvalidArgument", /pids/],
    ["a disk below what works", { resources: { diskMiB: 1 } }, "InvalidArgument", /disk/i],
    ["an unknown option", { memory: 512 }, "InvalidArgument", /memory/],
    ["an unknown resource", { resources: { gpus: 1 } }, "InvalidArgument", /gpus/],
    ["an idle timeout of zero", { idleTimeoutMs: 0 }, "InvalidArgument", /idleTimeoutMs/],
    ["a negative lifetime", { maxLifetimeMs: -5 }, "InvalidArgument", /maxLifetimeMs/],
    ["an unknown backend", { backend: "chroot" }, "InvalidArgument", /backend/],
    ["a backend of our own tests", { backend: "fake" }, "InvalidArgument", /backend/],
    ["a hostname with a blank", { hostname: "a b" }, "InvalidArgument", /hostname/],
  ];
  for (const [what, request, kind, message] of cases) {
    test(`with ${what} is refused by name`, () =>
      refused(create(node, request as Partial<CreateSandbox>), kind, message));
  }

  test("with more memory than the node has is refused", async () => {
    const call = create(node, { resources: { memoryMiB: 8 * 1024 * 1024 } });
    await assert.rejects(
      call,
      (error: { kind?: string }) => error.kind === "InvalidArgument" || error.kind === "NodeFull",
    );
  });

  test("is repeated under its key, and another one under the same key is refused", async () => {
    const one = await node.client.sandboxes.create({ base: BASE }, { idempotencyKey: "k1" });
    const again = await node.client.sandboxes.create({ base: BASE }, { idempotencyKey: "k1" });
    assert.equal(one.id, again.id);
    const other = node.client.sandboxes.create({ base: BASE, hostname: "other" }, { idempotencyKey: "k1" });
    await assert.rejects(other, (error: { kind?: string }) => /InvalidArgument|AlreadyExists/.test(error.kind ?? ""));
    await one.remove();
    await one.remove();
  });

  test("of a sandbox that never was can be deleted", () =>
    node.client.sandboxes.remove(`s${node.marks.edge}-aaaaaaaaaaaaaaaa`));
});
