import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Backend, Handle } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { SandboxId } from "#core/ids.ts";
import { admit, assertChange, type SandboxState, type Verb } from "#core/lifecycle.ts";
import { timeoutError } from "#core/rpc/deadline.ts";
import type { Lifetime, SandboxInfo, SandboxSpec } from "#core/sandbox.ts";
import { abortable } from "#edge/abort.ts";
import type { Admission } from "#edge/admission.ts";
import { CommandRows } from "#edge/command-rows.ts";
import { Commands } from "#edge/commands.ts";
import type { EdgeConfig, EdgeLog } from "#edge/config.ts";
import type { Journal } from "#edge/journal.ts";
import { LifetimeWatch } from "#edge/lifetime.ts";
import { type KilledCommand, OomKills } from "#edge/oom-kills.ts";
import { OperationQueue } from "#edge/queue.ts";
import { type Reached, reachAgent } from "#edge/reach.ts";
import type { SandboxRow, SandboxRows } from "#edge/sandbox-rows.ts";
import type { Timers } from "#edge/timers.ts";

/** After a failed removal, until the next attempt. */
const REMOVE_AGAIN_MS = 5_000;

/** What the drivers of one edge share. */
export interface DriverParts {
  readonly config: EdgeConfig;
  readonly clock: Clock;
  readonly log: EdgeLog;
  readonly journal: Journal;
  readonly rows: SandboxRows;
  readonly timers: Timers;
  readonly admission: Admission;
  /** Nothing of the sandbox is left. */
  gone(id: SandboxId): void;
}

/**
 * One sandbox: the only one to change its state, which it records before it acts. Bring-up, loss and removal queue and never
 * overlap; commands and files only need it to be ready, and go to the agent in the order in which they came.
 */
export class SandboxDriver {
  readonly commands: Commands;
  readonly #parts: DriverParts;
  readonly #backend: Backend;
  readonly #queue = new OperationQueue();
  readonly #lifetime: LifetimeWatch;
  readonly #created = Promise.withResolvers<void>();
  /** Aborts the bring-up and every wait for the agent once the sandbox is on its way out. */
  readonly #leaving = new AbortController();
  #row: SandboxRow;
  #link: GuestLink | undefined;
  /** Settles when the agent is reached again, while it is being. */
  #reaching: PromiseWithResolvers<GuestLink> | undefined;
  #bootId: string | undefined;
  #creators = 0;
  #users = 0;
  #oomKills = new OomKills();
  #computeHeld: boolean;
  #closed = false;

  constructor(parts: DriverParts, backend: Backend, row: SandboxRow) {
    this.#parts = parts;
    this.#backend = backend;
    this.#row = row;
    this.#computeHeld = row.state !== "failed";
    this.#lifetime = new LifetimeWatch(parts.timers, row.spec.id, {
      now: () => parts.clock.now(),
      facts: () => ({ ...this.#row, idleSinceMs: this.#users > 0 ? undefined : this.#row.lastActivityAtMs }),
      expire: (reason) => this.#removeSoon(reason),
    });
    this.commands = new Commands({
      spec: row.spec,
      rows: new CommandRows(parts.journal, row.spec.id),
      outputDir: this.#outputDir,
      outputCapBytes: parts.config.outputCapBytes,
      outputBudgetBytes: parts.config.outputBudgetBytes,
      now: () => parts.clock.now(),
      link: () => this.#link,
      tookOomKill: (killed) => this.#tookOomKill(killed),
      busy: () => this.busy(),
      warn: (facts, message) => parts.log.warn({ sandbox: row.spec.id, ...facts }, message),
    });
    // Whether anybody waits for these is not this object's concern.
    this.#created.promise.catch(() => undefined);
  }

  get spec(): SandboxSpec {
    return this.#row.spec;
  }

  get slot(): number {
    return this.#row.slot;
  }

  get state(): SandboxState {
    return this.#row.state;
  }

  /** Undefined when its compute was given back. */
  get held(): SandboxSpec["resources"] | undefined {
    return this.#computeHeld ? this.spec.resources : undefined;
  }

  get info(): SandboxInfo {
    const row = this.#row;
    return {
      spec: { ...row.spec, lifetime: row.lifetime },
      state: row.state,
      generation: row.generation,
      createdAtMs: row.createdAtMs,
      readyAtMs: row.readyAtMs,
      lastActivityAtMs: this.#users > 0 ? this.#parts.clock.now() : row.lastActivityAtMs,
      reason: row.reason,
      runningCommands: this.commands.running,
    };
  }

  /** Begins the bring-up. Its outcome is what `ready` tells. `copied`: settles when what it begins with is copied. */
  create(copied?: Promise<unknown>): void {
    void this.#queue.run("verb", () => this.#bringUp(copied));
  }

  /** Resolves when the sandbox is ready; rejects with what stopped its creation. When all who waited leave, it is removed. */
  async ready(signal: AbortSignal): Promise<SandboxInfo> {
    this.#creators += 1;
    try {
      await abortable(this.#created.promise, signal);
    } finally {
      this.#creators -= 1;
      if (this.#creators === 0 && this.state === "creating") this.#removeSoon("nobody waited for it any more");
    }
    return this.info;
  }

  /** Resolves when nothing is left, in whatever state it was. `kind` is what those hear who wait for it to be ready. */
  async destroy(reason: string, kind: "Cancelled" | "Unavailable" = "Cancelled"): Promise<void> {
    if (admit("destroy", this.state)) {
      this.#change("destroying", reason);
      this.#leaving.abort(new SandboxError(kind, `the sandbox was destroyed: ${reason}`));
    }
    await this.#queue.run("verb", () => this.#tearDown());
  }

  /** Moves the time limits; they are in force and recorded when it returns. */
  extend(lifetime: Lifetime): void {
    admit("extend", this.state, this.#row.reason);
    this.#row = { ...this.#row, lifetime, lastActivityAtMs: this.#parts.clock.now() };
    this.#parts.rows.update(this.#row);
    this.#lifetime.look();
  }

  /** The agent, for one operation; waits while it is being reached again. Throws `FailedPrecondition` unless ready. */
  async agent(verb: Verb, signal: AbortSignal): Promise<GuestLink> {
    admit(verb, this.state, this.#row.reason);
    if (this.#link !== undefined) return this.#link;
    if (this.#reaching === undefined) throw new Error("a ready sandbox has a link or is getting one");
    return abortable(this.#reaching.promise, signal);
  }

  /** Keeps the sandbox from being idle until disposed. */
  busy(): Disposable {
    this.#users += 1;
    let done = false;
    return {
      [Symbol.dispose]: () => {
        if (done) return;
        done = true;
        this.#users -= 1;
        this.touch();
      },
    };
  }

  /** For calls that go past the agent; `leaving` aborts when it is on its way out. Throws `FailedPrecondition` as `agent` does. */
  beside(verb: Verb): { readonly backend: Backend; readonly handle: Handle | undefined } {
    admit(verb, this.state, this.#row.reason);
    return { backend: this.#backend, handle: this.#row.handle };
  }

  /** Aborts when the sandbox is on its way out, `Cancelled` when somebody wants that. */
  get leaving(): AbortSignal {
    return this.#leaving.signal;
  }

  /** The sandbox is in use at this moment. */
  touch(): void {
    this.#row = { ...this.#row, lastActivityAtMs: this.#parts.clock.now() };
  }

  /** Takes up the sandbox where an earlier edge left it. Resolves when it is ready, failed or gone. */
  async recover(): Promise<void> {
    if (this.state === "ready") await this.#queue.run("event", () => this.#recoverReady());
    else if (this.state === "failed") this.commands.recoverLost("agent-lost");
    else if (this.state === "creating") await this.destroy("its creation was interrupted").catch(() => undefined);
    else await this.#queue.run("verb", () => this.#tearDown()).catch(() => undefined);
    this.#created.resolve();
    if (this.state !== "destroyed") this.#lifetime.look();
  }

  /** Lets go of the sandbox and leaves it running for the next edge. Resolves when nothing here acts on it any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#lifetime[Symbol.dispose]();
    this.#parts.timers.clear(this.#againKey);
    this.#leaving.abort(new SandboxError("Unavailable", "the node is closing"));
    this.commands.close();
    this.#link?.close();
    this.#reaching?.reject(new SandboxError("Unavailable", "the node is closing"));
    await this.#queue.run("verb", () => Promise.resolve());
  }

  async #bringUp(copied?: Promise<unknown>): Promise<void> {
    try {
      const handle = await this.#make(copied);
      this.#row = { ...this.#row, handle, readyAtMs: this.#parts.clock.now() };
      this.#change("ready");
      this.touch();
      if (this.#link === undefined) this.#agentLost();
      this.#created.resolve();
      this.#lifetime.look();
    } catch (error) {
      const typed = asSandboxError(error);
      if (this.#closed) {
        this.#created.reject(typed);
        return;
      }
      if (this.state === "creating") this.#change("destroying", `its creation failed: ${typed.message}`);
      await this.#tearDown().catch(() => undefined);
      this.#created.reject(typed);
    }
  }

  /** Everything between the intent and the answer of the agent, within the time for creating. */
  async #make(copied?: Promise<unknown>): Promise<Handle> {
    const { clock, config, rows } = this.#parts;
    const deadline = new AbortController();
    const leave = () => deadline.abort(this.#leaving.signal.reason);
    this.#leaving.signal.addEventListener("abort", leave, { once: true });
    using _timer = clock.after(config.createTimeoutMs, () => deadline.abort(timeoutError()));
    try {
      this.#leaving.signal.throwIfAborted();
      await this.#backend.check(this.spec);
      rows.insert(this.#row);
      // Not given up while that is under way: what is copied after a removal nobody would remove.
      await copied;
      const place = { slot: this.slot, copied: copied !== undefined };
      const handle = await this.#backend.create(this.spec, place, deadline.signal);
      deadline.signal.throwIfAborted();
      this.#use(await this.#backend.connect(handle, deadline.signal));
      deadline.signal.throwIfAborted();
      return handle;
    } finally {
      this.#leaving.signal.removeEventListener("abort", leave);
    }
  }

  #use(link: GuestLink): void {
    this.#link = link;
    this.#bootId = link.hello.bootId;
    void link.closed.then(() => {
      if (this.#link === link) this.#agentLost();
    });
  }

  #agentLost(): void {
    this.#link = undefined;
    if (this.state !== "ready" || this.#closed) return;
    const reaching = Promise.withResolvers<GuestLink>();
    reaching.promise.catch(() => undefined);
    this.#reaching = reaching;
    void this.#queue.run("event", () => this.#reachAgain());
  }

  async #reachAgain(): Promise<void> {
    const { handle } = this.#row;
    if (this.state !== "ready" || handle === undefined || this.#closed) return;
    try {
      await this.#reach(handle, (reached) => this.commands.reattach(reached.link, reached.reports));
    } catch (error) {
      await this.#fail(error);
    }
  }

  async #recoverReady(): Promise<void> {
    try {
      const before = this.#row.handle;
      const handle = before === undefined ? undefined : await this.#backend.recover(before);
      if (handle === undefined) throw new SandboxError("SandboxLost", "it did not survive while its node was away");
      this.#row = { ...this.#row, handle };
      this.#oomKills = new OomKills(this.commands.countCause("out-of-memory"));
      await this.#reach(handle, (reached) => this.commands.recover(reached.link, reached.reports));
      this.touch();
    } catch (error) {
      if (this.#closed) return;
      this.commands.recoverLost("agent-lost");
      await this.#fail(error);
    }
  }

  async #reach(handle: Handle, take: (reached: Reached) => void): Promise<void> {
    const { clock, config } = this.#parts;
    const options = { clock, delaysMs: config.reconnectDelaysMs, signal: this.#leaving.signal };
    const reached = await reachAgent(this.#backend, handle, options);
    if (this.#bootId !== undefined && reached.link.hello.bootId !== this.#bootId) {
      reached.link.close();
      throw new SandboxError("SandboxLost", "the agent of the sandbox was started anew");
    }
    this.#use(reached.link);
    take(reached);
    this.#reaching?.resolve(reached.link);
    this.#reaching = undefined;
  }

  /** The sandbox is dead: gives its compute back, keeps its files. */
  async #fail(error: unknown): Promise<void> {
    // A removal that began meanwhile ends everything by itself.
    if (this.#closed || this.state !== "ready") return;
    const typed = asSandboxError(error);
    const { log } = this.#parts;
    log.warn({ sandbox: this.spec.id, err: error }, "a sandbox was lost");
    this.#change("failed", typed.message);
    this.#link?.close();
    this.#link = undefined;
    this.commands.lose("agent-lost");
    this.#reaching?.reject(new SandboxError("SandboxLost", `the sandbox failed: ${typed.message}`, { cause: error }));
    this.#reaching = undefined;
    try {
      await this.#backend.kill(this.spec.id);
    } catch (failure) {
      log.warn({ sandbox: this.spec.id, err: failure }, "cannot end the processes of a failed sandbox");
      return;
    }
    this.#releaseCompute();
  }

  /** Removes everything, from any state; repeats are harmless. Rejects when something could not be removed, and tries again. */
  async #tearDown(): Promise<void> {
    if (this.state === "destroyed" || this.#closed) return;
    const { rows, admission, timers, log } = this.#parts;
    const { id } = this.spec;
    this.#lifetime[Symbol.dispose]();
    this.commands.lose("sandbox-stopped");
    this.#link?.close();
    this.#link = undefined;
    this.#reaching?.reject(new SandboxError("SandboxLost", "the sandbox was destroyed"));
    try {
      await this.#backend.destroy(id);
      rmSync(this.#outputDir, { recursive: true, force: true });
      rows.delete(id);
    } catch (error) {
      log.warn({ sandbox: id, err: error }, "cannot remove a sandbox; trying again later");
      timers.set(this.#againKey, this.#parts.clock.now() + REMOVE_AGAIN_MS, () => this.#removeSoon("tried again"));
      throw new SandboxError("Unavailable", `sandbox ${id} could not be removed`, {
        cause: error,
        hint: "the node tries again by itself",
      });
    }
    timers.clear(this.#againKey);
    this.#change("destroyed");
    admission.release(this.held, this.slot);
    this.#parts.gone(id);
  }

  #removeSoon(reason: string): void {
    // A failure is logged and tried again where it happens.
    this.destroy(reason).catch(() => undefined);
  }

  #change(to: SandboxState, reason?: string): void {
    assertChange(this.state, to);
    this.#row = { ...this.#row, state: to, generation: this.#row.generation + 1, reason };
    if (to !== "destroyed") this.#parts.rows.update(this.#row);
  }

  #releaseCompute(): void {
    if (!this.#computeHeld) return;
    this.#computeHeld = false;
    this.#parts.admission.releaseCompute(this.spec.resources);
  }

  async #tookOomKill(killed: KilledCommand): Promise<boolean> {
    const { handle } = this.#row;
    return handle !== undefined && this.#oomKills.claim(await this.#backend.usage(handle), killed);
  }

  get #outputDir(): string {
    return join(this.#parts.config.dataDir, "output", this.#row.spec.id);
  }

  get #againKey(): string {
    return `remove ${this.spec.id}`;
  }
}
