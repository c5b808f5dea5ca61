import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openFakeBackend } from "#backends/fake/backend.ts";
import type { FakeScript } from "#backends/fake/config.ts";
import { FakeHost } from "#backends/fake/host.ts";
import { type Clock, systemClock } from "#core/clock.ts";
import { parseEdgeId } from "#core/ids.ts";
import type { CommandResult, RunWait } from "#core/node.ts";
import type { CommandInfo, CommandSpec } from "#core/sandbox.ts";
import { aCommand } from "#core/suites/node-suite.ts";
import { EDGE_DEFAULTS, type EdgeConfig } from "#edge/config.ts";
import { type Edge, type EdgeOptions, openEdge } from "#edge/edge.ts";

/** A signal that never fires. */
export const never: AbortSignal = new AbortController().signal;
const LONG: RunWait = { waitMs: 20_000, inlineBytes: 1024 * 1024 };

/** What differs from an edge on which everything succeeds. */
export interface RigOptions {
  readonly clock?: Clock;
  readonly script?: FakeScript;
  readonly config?: Partial<EdgeConfig>;
  readonly share?: EdgeOptions["share"];
  /** Plenty when absent. */
  readonly availableMemoryMiB?: () => number;
}

/** For tests: an edge over a fake node, which can be killed and started again. */
export class Rig implements AsyncDisposable {
  readonly host = new FakeHost();
  readonly warnings: string[] = [];
  readonly #options: RigOptions;
  readonly #dirs: string[] = [];
  #edge: Edge | undefined;

  private constructor(options: RigOptions) {
    this.#options = options;
    this.#dirs.push(mkdtempSync(join(tmpdir(), "dsec-edge-")));
  }

  static async open(options: RigOptions = {}): Promise<Rig> {
    const rig = new Rig(options);
    await rig.start();
    return rig;
  }

  get edge(): Edge {
    if (this.#edge === undefined) throw new Error("the edge is not open");
    return this.#edge;
  }

  get dataDir(): string {
    return this.#dirs.at(-1) ?? "";
  }

  async start(): Promise<void> {
    const {
      clock = systemClock,
      script = () => {},
      config,
      share,
      availableMemoryMiB = () => 1_000_000,
    } = this.#options;
    this.#edge = await openEdge({
      config: {
        ...EDGE_DEFAULTS,
        edge: parseEdgeId("fake"),
        version: "0",
        dataDir: this.dataDir,
        capacity: { cpus: 4, memoryMiB: 8192, sandboxes: 1000 },
        reconnectDelaysMs: [0, 1, 2],
        ...config,
      },
      backends: [openFakeBackend(this.host, { clock, script })],
      clock,
      share,
      log: { info: () => {}, warn: (_, message) => this.warnings.push(message) },
      availableMemoryMiB,
    });
  }

  /** As `kill -9` and a new start: the new edge finds the disk as it is at this very moment, the old one acts no more. */
  async crash(): Promise<void> {
    const dead = this.edge;
    const dir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
    cpSync(this.dataDir, dir, { recursive: true });
    this.#dirs.push(dir);
    await this.start();
    await dead.close({ keepSandboxes: true });
  }

  /** As a proper stop that leaves the sandboxes, and a new start. */
  async restart(): Promise<void> {
    await this.edge.close({ keepSandboxes: true });
    await this.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#edge?.close({ keepSandboxes: false });
    for (const dir of this.#dirs) rmSync(dir, { recursive: true, force: true });
  }
}

/** Runs a command to its end. */
export function run(
  edge: Pick<Edge, "startCommand">,
  id: Parameters<Edge["startCommand"]>[0],
  argv: readonly string[],
  changes: Partial<CommandSpec> = {},
): Promise<CommandResult> {
  return edge.startCommand(id, aCommand(argv, changes), LONG, never);
}

/** Starts a command and does not wait. */
export function start(
  edge: Pick<Edge, "startCommand">,
  id: Parameters<Edge["startCommand"]>[0],
  argv: readonly string[],
  changes: Partial<CommandSpec> = {},
): Promise<CommandResult> {
  return edge.startCommand(id, aCommand(argv, changes), { waitMs: 0, inlineBytes: 0 }, never);
}

/** Every command of a sandbox, in order. */
export async function listed(
  edge: Pick<Edge, "listCommands">,
  id: Parameters<Edge["listCommands"]>[0],
): Promise<readonly CommandInfo[]> {
  return (await edge.listCommands(id, { limit: 1_000, cursor: undefined, newestFirst: false }, never)).commands;
}

/** Waits until `holds`, giving everything else its turn. Rejects after ten seconds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = Date.now() + 10_000;
  while (!(await holds())) {
    if (Date.now() > endMs) throw new Error(`waited too long for ${holds}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** All the bytes of a stream of chunks; throws when there is a gap. */
export async function bytesOf(chunks: AsyncIterable<{ offset: number; bytes: Uint8Array }>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let next: number | undefined;
  for await (const { offset, bytes } of chunks) {
    if (next !== undefined && next !== offset) throw new Error(`a gap from ${next} to ${offset}`);
    parts.push(new Uint8Array(bytes));
    next = offset + bytes.length;
  }
  return Buffer.concat(parts);
}
