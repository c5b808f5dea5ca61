import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import WebSocket from "ws";
import { containerRig } from "#backends/container/test-support/rig.ts";
import { type FunctionSettings, openFunctions } from "#backends/fncall/backend.ts";
import { systemClock } from "#core/clock.ts";
import type { FunctionCall, FunctionRuntime } from "#core/functions.ts";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { websocketTransport } from "#core/rpc/websocket.ts";
import type { LayerDigest, SandboxSpec } from "#core/sandbox.ts";
import { EDGE_DEFAULTS } from "#edge/config.ts";
import { type Edge, openEdge } from "#edge/edge.ts";
import { listenNode } from "#edge/listen.ts";

const SETTINGS: FunctionSettings = {
  running: 2,
  memoryMiB: 256,
  queued: 100,
  resultBytes: 1024 ** 3,
  cpus: 2,
  cacheBytes: 1024 ** 2,
  pools: { floor: 1, ceiling: 2, idleMs: 60_000 },
};

/** How a test's edge differs from one with two calls at once and memory enough. */
export interface FunctionsEdgeOptions {
  readonly memoryMiB?: number;
  /** As the node measures it. */
  readonly availableMemoryMiB?: () => number;
}

/** An edge with functions over real containers, and the ways to reach it. */
export interface FunctionsEdge extends AsyncDisposable {
  readonly edge: Edge;
  readonly layers: readonly LayerDigest[];
  /** A sandbox that it can make. */
  spec(change?: Partial<SandboxSpec>): SandboxSpec;
  /** The node as a control plane on another machine has it; disposing cuts the connection, as the end of the edge's machine would. */
  remote(): Promise<{ readonly node: Node } & AsyncDisposable>;
}

/** Opens one with folders and an id of its own. */
export async function functionsEdge(options: FunctionsEdgeOptions = {}): Promise<FunctionsEdge> {
  await using opened = new AsyncDisposableStack();
  const containers = opened.use(await containerRig());
  const dataDir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
  opened.defer(() => rmSync(dataDir, { recursive: true, force: true }));
  const capacity = { cpus: 100, memoryMiB: options.memoryMiB ?? 100_000, sandboxes: 100 };
  const { backend, edge: name } = containers;
  const edge = await openEdge({
    config: { ...EDGE_DEFAULTS, edge: name, version: "0", dataDir, capacity, memoryOvercommit: 1 },
    backends: [backend],
    functions: (host) =>
      openFunctions({ backend, host, settings: SETTINGS, clock: systemClock, log: (line) => console.error(line) }),
    clock: systemClock,
    log: { info: () => {}, warn: (facts: unknown, message: string) => console.error(message, facts) },
    availableMemoryMiB: options.availableMemoryMiB ?? (() => 1_000_000),
  });
  opened.defer(() => edge.close({ keepSandboxes: false }));
  const closing = opened.move();
  return {
    edge,
    layers: containers.spec().layers,
    spec: (change) => containers.spec(change),
    remote: () => remote(edge),
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

async function remote(edge: Edge): Promise<{ readonly node: Node } & AsyncDisposable> {
  await using opened = new AsyncDisposableStack();
  const { url } = opened.use(await listenNode(edge, { host: "127.0.0.1", port: 0, token: "secret" }));
  const socket = new WebSocket(url, { headers: { authorization: "Bearer secret" } });
  await once(socket, "open");
  const node = opened.use(new RemoteNode(websocketTransport(socket)));
  const closing = opened.move();
  return { node, [Symbol.asyncDispose]: () => closing.disposeAsync() };
}

/** A call of a shell script. */
export function scriptCall(
  layers: readonly LayerDigest[],
  code: string,
  change: Partial<FunctionCall> = {},
): FunctionCall {
  const runtime: FunctionRuntime = {
    name: "sh",
    layers,
    env: {},
    source: "main.sh",
    compile: undefined,
    run: ["sh", "main.sh"],
    warm: undefined,
  };
  return {
    project: "test",
    runtime,
    code: Buffer.from(code),
    command: undefined,
    files: [],
    stdin: new Uint8Array(),
    args: [],
    env: {},
    limits: { compileMs: 10_000, runMs: 600_000, memoryMiB: 64, outputBytes: 8 * 1024 * 1024, pids: 16 },
    outputs: [],
    tests: [],
    stopEarly: false,
    reuse: "cells",
    ...change,
  };
}
