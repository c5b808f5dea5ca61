import type { Backend, Footprint, Handle, Inventory, Pausing, Place } from "#core/backend.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying, PackedDiff, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Usage } from "#core/usage.ts";
import { FAKE_DEFAULTS, type FakeConfig, type FakeMoment } from "./config.ts";
import { bootOf, handleOf } from "./handle.ts";
import { type FakeHost, FakeSandbox } from "./host.ts";
import { FakeLink } from "./link.ts";
import { packFake } from "./pack.ts";
import { fakeObstacle } from "./probe.ts";

const FOOTPRINT: Footprint = {
  ready: new Set(["processes", "cgroups", "network-namespaces", "user-ids", "uppers", "run-directories"]),
  paused: new Set(["uppers"]),
  failed: new Set(["uppers"]),
};

/** Opens a backend on a node in memory. The one that was open on it before is dead from here on, as after `kill -9`. */
export function openFakeBackend(host: FakeHost, config: Partial<FakeConfig> = {}): Backend {
  return new FakeBackend(host, { ...FAKE_DEFAULTS, ...config });
}

class FakeBackend implements Backend {
  /** It stands for containers: users have no kind of their own for it. */
  readonly kind = "container";
  readonly footprint = FOOTPRINT;
  readonly foresight = 0;
  readonly packing: Packing;
  readonly copying: Copying;
  readonly pausing: Pausing;
  readonly #host: FakeHost;
  readonly #config: FakeConfig;
  readonly #generation: number;

  constructor(host: FakeHost, config: FakeConfig) {
    this.#host = host;
    this.#config = config;
    this.#generation = host.takeOver();
    this.packing = { pack: (spec, options, signal) => this.#pack(spec, options, signal) };
    this.copying = {
      copies: true,
      processes: false,
      packs: true,
      copy: (spec, copies, signal) => this.#copy(spec, copies, signal),
    };
    this.pausing = {
      pause: async (handle, _spec, signal) => this.#hold(handle, true, signal),
      resume: async (handle, _spec, _place, signal) => this.#hold(handle, false, signal),
    };
  }

  expect(): void {}

  async check(spec: SandboxSpec): Promise<void> {
    await this.#moment("check", spec.id);
  }

  async create(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const before = this.#host.sandboxes.get(spec.id);
    if (before?.alive) return handleOf(spec.id, before.bootId);
    await this.#interruptible(this.#moment("create", spec.id), signal);
    const files = place.copied !== undefined ? this.#host.copies.get(spec.id) : undefined;
    this.#host.copies.delete(spec.id);
    const sandbox = new FakeSandbox(spec, place.slot, files);
    this.#host.sandboxes.set(spec.id, sandbox);
    try {
      await this.#interruptible(this.#moment("created", spec.id), signal);
    } catch (error) {
      this.#remove(spec.id);
      throw error;
    }
    return handleOf(spec.id, sandbox.bootId);
  }

  async connect(handle: Handle, signal: AbortSignal): Promise<GuestLink> {
    await this.#interruptible(this.#moment("connect", handle.id), signal);
    const sandbox = this.#named(handle);
    if (sandbox === undefined) throw new SandboxError("SandboxLost", "the fake sandbox is dead");
    if (sandbox.paused) throw new SandboxError("Unavailable", "the fake sandbox is paused");
    return new FakeLink(sandbox, this.#config.clock);
  }

  async recover(handle: Handle): Promise<Handle | undefined> {
    await this.#moment("recover", handle.id);
    return this.#named(handle) === undefined ? undefined : handle;
  }

  async kill(id: SandboxId): Promise<void> {
    await this.#moment("kill", id);
    this.#host.sandboxes.get(id)?.die();
  }

  async destroy(id: SandboxId): Promise<void> {
    await this.#moment("destroy", id);
    this.#remove(id);
  }

  async usage(handle: Handle): Promise<Usage> {
    await this.#moment("usage", handle.id);
    const sandbox = this.#named(handle);
    const pids = sandbox === undefined ? 0 : 1 + [...sandbox.tasks.values()].filter((task) => !task.hasEnded).length;
    return {
      cpu: { totalMs: 0, userMs: 0, systemMs: 0, throttledMs: 0 },
      memory: { bytes: 0, peakBytes: 0, swapBytes: 0 },
      oomKills: sandbox?.oomKills ?? 0,
      oomVictims: [],
      pids,
      diskBytes: undefined,
      io: undefined,
      network: undefined,
    };
  }

  async inventory(): Promise<Inventory> {
    return this.#host.inventory();
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  async #pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    await this.#interruptible(this.#moment("pack", spec.id), signal);
    const sandbox = this.#host.sandboxes.get(spec.id);
    if (sandbox === undefined) throw new SandboxError("NotFound", `${spec.id} has no files`);
    return packFake(sandbox, options);
  }

  async #copy(spec: SandboxSpec, { to, pack }: Copies, signal: AbortSignal): Promise<Copied> {
    await this.#interruptible(this.#moment("copy", spec.id), signal);
    for (const id of to) this.#host.copies.set(id, this.#host.get(spec.id).files.copy());
    return { frozenMs: 0, ...(pack === undefined ? {} : { packed: this.#pack(spec, pack, signal) }) };
  }

  /** Its tasks go on meanwhile: time is nothing that a fake sandbox has. */
  async #hold(handle: Handle, paused: boolean, signal: AbortSignal): Promise<Handle> {
    await this.#interruptible(this.#moment(paused ? "pause" : "resume", handle.id), signal);
    const sandbox = this.#named(handle);
    if (sandbox === undefined) throw new SandboxError("SandboxLost", "the fake sandbox is dead");
    sandbox.paused = paused;
    if (paused) sandbox.breakLinks();
    return handle;
  }

  #remove(id: SandboxId): void {
    this.#host.sandboxes.get(id)?.die();
    this.#host.sandboxes.delete(id);
  }

  #named(handle: Handle): FakeSandbox | undefined {
    const sandbox = this.#host.sandboxes.get(handle.id);
    return sandbox?.alive && sandbox.bootId === bootOf(handle) ? sandbox : undefined;
  }

  async #moment(moment: FakeMoment, id: SandboxId): Promise<void> {
    await this.#config.script(moment, id);
    const obstacle = fakeObstacle(this.#host, this.#generation);
    if (obstacle !== undefined) throw new SandboxError("Unavailable", obstacle);
  }

  #interruptible<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) reject(signal.reason);
      else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      work.then(resolve, reject);
    });
  }
}
