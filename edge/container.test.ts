import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type ContainerRig, containerRig } from "#backends/container/test-support/rig.ts";
import { systemClock } from "#core/clock.ts";
import type { Node } from "#core/node.ts";
import { type NodeRig, nodeContract } from "#core/suites/node-suite.ts";
import { EDGE_DEFAULTS } from "#edge/config.ts";
import { type Edge, openEdge } from "#edge/edge.ts";
import { bytesOf, never, run, start, until } from "./test-support/rig.ts";

describe("over real containers", () => {
  let containers: ContainerRig;
  before(async () => {
    containers = await containerRig();
  });
  after(() => containers[Symbol.asyncDispose]());

  function open(dataDir: string): Promise<Edge> {
    const capacity = { cpus: 100, memoryMiB: 100_000, sandboxes: 100 };
    const config = { ...EDGE_DEFAULTS, edge: containers.edge, version: "0", dataDir, capacity };
    const log = { info: () => {}, warn: (facts: unknown, message: string) => console.error(message, facts) };
    return openEdge({
      config,
      backends: [containers.backend],
      clock: systemClock,
      log,
      availableMemoryMiB: () => 1_000_000,
    });
  }

  nodeContract("an edge", async (): Promise<NodeRig & { readonly node: Node }> => {
    const dataDir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
    const node = await open(dataDir);
    return {
      node,
      spec: () => containers.spec(),
      async serveEcho(id) {
        await start(node, id, ["nc", "-ll", "-p", "7", "-e", "cat"]);
        assert.ok(await node.waitForPort(id, 7, 20_000, never));
      },
      async [Symbol.asyncDispose]() {
        await node.close({ keepSandboxes: false });
        rmSync(dataDir, { recursive: true, force: true });
      },
    };
  });

  test("a restarted edge takes up commands of real agents, running, ended meanwhile and with output under way", async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
    let edge = await open(dataDir);
    try {
      const { id } = (await edge.create(containers.spec(), never)).spec;
      const ended = await run(edge, id, ["echo", "early"]);
      const script = "i=0; while [ $i -lt 200000 ]; do echo line $i; i=$((i+1)); done";
      const writer = await start(edge, id, ["sh", "-c", script]);
      const meanwhile = await start(edge, id, ["sh", "-c", "sleep 0.05; echo meanwhile; exit 3"]);
      const cat = await start(edge, id, ["cat"], { stdin: "pipe" });
      await until(async () => (await edge.waitCommand(id, writer.command.id, 0, never)).stdout.seen > 20_000);
      await edge.close({ keepSandboxes: true });
      edge = await open(dataDir);
      const read = { stream: "stdout", offset: 0, follow: true, hold: true } as const;
      const textOf = async (command: typeof ended) =>
        String(await bytesOf(edge.readOutput(id, command.command.id, read, never)));
      assert.equal(await textOf(ended), "early\n");
      assert.equal(await textOf(meanwhile), "meanwhile\n");
      assert.equal((await edge.waitCommand(id, meanwhile.command.id, 10_000, never)).status?.code, 3);
      const lines = Array.from({ length: 200_000 }, (_, index) => `line ${index}\n`).join("");
      assert.ok((await textOf(writer)) === lines);
      const bytes = (async function* () {
        yield Buffer.from("still here");
      })();
      await edge.writeStdin(id, cat.command.id, { offset: 0, bytes, close: true }, never);
      assert.equal(await textOf(cat), "still here");
      await edge.destroy(id, never);
    } finally {
      await edge.close({ keepSandboxes: false });
      rmSync(dataDir, { recursive: true, force: true });
    }
  });

  test("a program that takes more memory than its sandbox has ends as out-of-memory", async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
    const edge = await open(dataDir);
    try {
      const { id } = (await edge.create(containers.spec(), never)).spec;
      const { command } = await run(edge, id, ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]);
      assert.equal(command.status?.cause, "out-of-memory");
      assert.equal((await run(edge, id, ["true"])).command.status?.code, 0);
    } finally {
      await edge.close({ keepSandboxes: false });
      rmSync(dataDir, { recursive: true, force: true });
    }
  });
});
