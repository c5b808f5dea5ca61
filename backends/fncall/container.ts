import type { Backend, Handle } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { FunctionHost, FunctionLease, FunctionRuntime } from "#core/functions.ts";
import type { CellProgram, GuestLink } from "#core/guest.ts";
import { DEFAULT_RESOURCES, type Resources, type SandboxSpec } from "#core/sandbox.ts";
import { Keeper } from "./keeper.ts";

/** Users of calls: none that a base has. A keeper has a range of them, and the next one that behind it, so that no call is counted with another. */
const FIRST_UID = 20_000;
const CALLS_PER_KEEPER = 100;
const UID_RANGES = 400;
/** Processes of the platform in a container, and of the calls: each call has a limit of its own. */
const CONTAINER_PIDS = 16_384;
const MIB = 1024 * 1024;

/** What containers of functions are made with. */
export interface FunctionContainerOptions {
  readonly backend: Backend;
  readonly host: FunctionHost;
  readonly runtime: FunctionRuntime;
  readonly cpus: number;
  /** Of all calls together. */
  readonly memoryMiB: number;
  /** What one call may write. */
  readonly spaceMiB: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** A container in which calls of one runtime run, each in a cell of its own. */
export class FunctionContainer {
  readonly #options: FunctionContainerOptions;
  readonly #lease: FunctionLease;
  readonly #link: GuestLink;
  #tasks = 0;
  #keepers = 0;
  #destroyed: Promise<void> | undefined;

  private constructor(options: FunctionContainerOptions, lease: FunctionLease, link: GuestLink) {
    this.#options = options;
    this.#lease = lease;
    this.#link = link;
  }

  /** Resolves when it can make cells. Rejects with nothing left behind. */
  static async open(options: FunctionContainerOptions): Promise<FunctionContainer> {
    const { backend, host, runtime, signal } = options;
    const resources: Resources = {
      ...DEFAULT_RESOURCES,
      cpus: options.cpus,
      memoryMiB: options.memoryMiB,
      pids: CONTAINER_PIDS,
    };
    const lease = host.lease(resources);
    try {
      const handle: Handle = await backend.create(specOf(lease, runtime, resources), { slot: lease.slot }, signal);
      const container = new FunctionContainer(options, lease, await backend.connect(handle, signal));
      if (runtime.warm?.kind === "fork") await container.#serveForks(runtime.warm.argv, runtime.warm.script);
      return container;
    } catch (error) {
      await backend.destroy(lease.id);
      lease.release();
      throw error;
    }
  }

  get id(): string {
    return this.#lease.id;
  }

  /** Resolves when it cannot make cells any more, however that came. */
  get lost(): Promise<void> {
    return this.#link.closed;
  }

  /** Resolves when its first call would begin at once. Rejects when none can be made: the container is no good then. */
  startKeeper(): Promise<Keeper> {
    const { runtime, spaceMiB, clock } = this.#options;
    const range = this.#keepers % UID_RANGES;
    this.#keepers += 1;
    return Keeper.start({
      link: this.#link,
      number: this.#number(),
      uid: FIRST_UID + range * CALLS_PER_KEEPER,
      calls: CALLS_PER_KEEPER,
      program: programOf(runtime),
      env: runtime.env,
      spaceBytes: spaceMiB * MIB,
      clock,
    });
  }

  /** Ends everything in it and gives its share of the node back. Safe twice. */
  destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    return this.#destroyed;
  }

  async #destroy(): Promise<void> {
    this.#link.close();
    await this.#options.backend.destroy(this.#lease.id);
    this.#lease.release();
  }

  #number(): number {
    this.#tasks += 1;
    return this.#tasks;
  }

  /** Resolves when the server forks; when it ends later, so does the container's use. */
  async #serveForks(argv: readonly string[], script: string): Promise<void> {
    const number = this.#number();
    const ready = Promise.withResolvers<void>();
    let said = "";
    await this.#link.start(
      number,
      {
        action: { type: "fork-server", argv: argv.map((word) => Buffer.from(word)) },
        user: "root",
        cwd: "/",
        env: this.#options.runtime.env,
        stdin: "pipe",
        timeLimitMs: undefined,
      },
      {
        output: (stream, offset, bytes) => {
          this.#link.acknowledge(number, stream, offset + bytes.length);
          said = (said + Buffer.from(bytes).toString()).slice(-1000);
          if (stream === "stdout") ready.resolve();
        },
        ended: () => undefined,
        end: () => {
          ready.reject(
            new SandboxError("FailedPrecondition", `the fork server of the runtime does not start: ${said}`),
          );
          this.#link.close();
        },
      },
    );
    await this.#link.writeStdin(number, 0, Buffer.from(script));
    this.#link.closeStdin(number);
    await ready.promise;
  }
}

function programOf({ warm }: FunctionRuntime): CellProgram {
  if (warm === undefined) return "cold";
  if (warm.kind === "fork") return "forked";
  return { argv: [...warm.argv, warm.script].map((word) => Buffer.from(word)) };
}

function specOf({ id }: FunctionLease, runtime: FunctionRuntime, resources: Resources): SandboxSpec {
  return {
    id,
    project: "functions",
    backend: "container",
    layers: runtime.layers,
    config: { env: {}, user: undefined, workdir: undefined },
    hostname: "function",
    env: {},
    user: "root",
    workdir: "/",
    resources,
    rlimits: {},
    lifetime: { idleTimeoutMs: undefined, maxLifetimeMs: undefined },
    labels: {},
    cells: true,
    origin: { base: runtime.name, workspace: undefined, toolkits: [] },
  };
}
