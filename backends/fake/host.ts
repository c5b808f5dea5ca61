import { randomUUID } from "node:crypto";
import type { Inventory } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { FakeFiles } from "./files.ts";
import type { FakeLink } from "./link.ts";
import type { FakeTask } from "./task.ts";

/** One sandbox in memory: files, tasks, and whether its agent lives. */
export class FakeSandbox {
  readonly spec: SandboxSpec;
  readonly slot: number;
  readonly bootId = randomUUID();
  readonly files: FakeFiles;
  readonly tasks = new Map<number, FakeTask>();
  readonly links = new Set<FakeLink>();
  oomKills = 0;
  alive = true;
  paused = false;
  #lastPid = 1;

  constructor(spec: SandboxSpec, slot: number, files = new FakeFiles()) {
    this.spec = spec;
    this.files = files;
    this.slot = slot;
  }

  nextPid(): number {
    this.#lastPid += 1;
    return this.#lastPid;
  }

  /** Ends everything; the files stay. */
  die(): void {
    this.alive = false;
    for (const task of this.tasks.values()) task.abandon();
    this.tasks.clear();
    this.breakLinks();
  }

  /** Cuts the connections; the agent and its tasks go on. */
  breakLinks(): void {
    for (const link of [...this.links]) link.close();
  }
}

/** A node in memory. It outlives the backends that are opened on it, as a machine does. */
export class FakeHost {
  readonly sandboxes = new Map<SandboxId, FakeSandbox>();
  /** Files that were copied for sandboxes to come. */
  readonly copies = new Map<SandboxId, FakeFiles>();
  #generation = 0;

  get generation(): number {
    return this.#generation;
  }

  /** A new backend takes over: those before it are dead from here on, and so are their connections. */
  takeOver(): number {
    this.#generation += 1;
    for (const sandbox of this.sandboxes.values()) sandbox.breakLinks();
    return this.#generation;
  }

  /** Throws when there is none. */
  get(id: SandboxId): FakeSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) throw new Error(`no fake sandbox ${id}`);
    return sandbox;
  }

  inventory(): Inventory {
    const all: ReadonlySet<string> = new Set(this.sandboxes.keys());
    const live = new Set(
      [...this.sandboxes.values()].filter(({ alive, paused }) => alive && !paused).map(({ spec }): string => spec.id),
    );
    return {
      processes: live,
      cgroups: live,
      mounts: new Set(),
      "network-namespaces": live,
      "user-ids": live,
      uppers: all,
      "run-directories": live,
      blanks: new Set(),
    };
  }
}
