import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Backend, Handle } from "#core/backend.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import { admit, type SandboxState, type Verb } from "#core/lifecycle.ts";
import type { Lifetime, SandboxInfo, SandboxSpec } from "#core/sandbox.ts";
import { AgentConnection } from "#edge/agent-connection.ts";
import { Commands } from "#edge/commands/commands.ts";
import { type KilledCommand, OomKills } from "#edge/commands/oom-kills.ts";
import { CommandRows } from "#edge/commands/rows.ts";
import type { Origin } from "#edge/copies/carried.ts";
import type { DriverParts } from "#edge/driver-parts.ts";
import { LifetimeWatch } from "#edge/lifetime.ts";
import { type PauseHost, Pauses } from "#edge/pause.ts";
import { SandboxRecord } from "#edge/sandbox-record.ts";
import type { SandboxRow } from "#edge/sandbox-rows.ts";
import { within } from "#edge/waiting/deadline.ts";
import { OperationQueue } from "#edge/waiting/queue.ts";
import { UseCount } from "#edge/waiting/use-count.ts";

/** After a failed removal, until the next attempt. */
const REMOVE_AGAIN_MS = 5_000;

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
  readonly #connection: AgentConnection;
  readonly #pauses: Pauses;
  readonly #record: SandboxRecord;
  /** One attempt for all who wait for it. */
  #resuming: Promise<void> | undefined;
  readonly #users = new UseCount(() => this.touch());
  #creators = 0;
  #oomKills = new OomKills();
  #closed = false;

  constructor(parts: DriverParts, backend: Backend, row: SandboxRow) {
    this.#parts = parts;
    this.#backend = backend;
    this.#record = new SandboxRecord(parts, row);
    this.#lifetime = new LifetimeWatch(parts.timers, row.spec.id, {
      now: () => parts.clock.now(),
      facts: () => ({ ...this.#record.row, idleSinceMs: this.idleSinceMs }),
      expire: (reason) => this.#removeSoon(reason),
    });
    this.commands = new Commands({
      spec: row.spec,
      rows: new CommandRows(parts.journal, row.spec.id),
      outputDir: this.#outputDir,
      outputCapBytes: parts.config.outputCapBytes,
      outputBudgetBytes: parts.config.outputBudgetBytes,
      now: () => parts.clock.now(),
      link: () => this.#connection.link,
      tookOomKill: (killed) => this.#tookOomKill(killed),
      busy: () => this.busy(),
      warn: (facts, message) => parts.log.warn({ sandbox: row.spec.id, ...facts }, message),
    });
    this.#connection = new AgentConnection({
      backend,
      clock: parts.clock,
      delaysMs: parts.config.reconnectDelaysMs,
      signal: this.#leaving.signal,
      take: ({ link, reports }) => this.commands.reattach(link, reports),
      broken: () => this.#agentLost(),
    });
    this.#pauses = new Pauses(this.#pauseHost);
    // Whether anybody waits for these is not this object's concern.
    this.#created.promise.catch(() => undefined);
  }

  get spec(): SandboxSpec {
    return this.#record.row.spec;
  }

  get slot(): number {
    return this.#record.row.slot;
  }

  get state(): SandboxState {
    return this.#record.row.state;
  }

  /** Undefined when its compute was given back. */
  get held(): SandboxSpec["resources"] | undefined {
    return this.#record.held;
  }

  get info(): SandboxInfo {
    return this.#record.info({ inUse: this.#users.any, runningCommands: this.commands.running });
  }

  /** Begins the bring-up. Its outcome is what `ready` tells. */
  create(origin?: Origin): void {
    void this.#queue.run("verb", () => this.#bringUp(origin));
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
      this.#record.change("destroying", { reason: reason });
      this.#leaving.abort(new SandboxError(kind, `the sandbox was destroyed: ${reason}`));
    }
    await this.#queue.run("verb", () => this.#tearDown());
  }

  /** Moves the time limits; they are in force and recorded when it returns. */
  extend(lifetime: Lifetime): void {
    admit("extend", this.state, this.#record.row.reason);
    this.#record.extend(lifetime);
    this.#lifetime.look();
  }

  /** Resolves when it is saved and its compute given back. Rejects by name where its backend cannot, and then it goes on. */
  async pause(signal: AbortSignal): Promise<SandboxInfo> {
    admit("pause", this.state, this.#record.row.reason);
    void this.#pauses.pausing;
    const paused = this.#queue.run("verb", () => this.#pauses.pause());
    await abortable(paused, signal);
    return this.info;
  }

  /** Resolves when it runs again. Rejects with `NodeFull`, or with why it cannot, and then it stays as it is. */
  async resume(signal: AbortSignal): Promise<SandboxInfo> {
    if (admit("resume", this.state, this.#record.row.reason)) {
      this.#resuming ??= this.#queue
        .run("verb", () => this.#pauses.resume())
        .finally(() => {
          this.#resuming = undefined;
        });
      await abortable(this.#resuming, signal);
    }
    return this.info;
  }

  /** Resumes it if it is paused. Throws `FailedPrecondition` unless its state takes the verb. */
  async awake(verb: Verb, signal: AbortSignal): Promise<void> {
    for (; ; await this.resume(signal)) {
      admit(verb, this.state, this.#record.row.reason);
      if (this.state === "ready" || this.state === "failed") return;
    }
  }

  /** The agent, for one operation; waits while it is being reached again, or resumed. Throws `FailedPrecondition` unless its state takes the verb. */
  async agent(verb: Verb, signal: AbortSignal): Promise<GuestLink> {
    await this.awake(verb, signal);
    return this.#connection.wait(signal);
  }

  /** Runs `work` while it is neither paused nor resumed. */
  asItIs<T>(work: () => Promise<T>): Promise<T> {
    return this.#queue.run("verb", work);
  }

  /** Keeps the sandbox from being idle until disposed. */
  busy(): Disposable {
    return this.#users.enter();
  }

  /** For calls that go past the agent; `leaving` aborts when it is on its way out. Throws `FailedPrecondition` as `agent` does. */
  beside(verb: Verb): { readonly backend: Backend; readonly handle: Handle | undefined } {
    admit(verb, this.state, this.#record.row.reason);
    return { backend: this.#backend, handle: this.#record.row.handle };
  }

  /** Aborts when the sandbox is on its way out, `Cancelled` when somebody wants that. */
  get leaving(): AbortSignal {
    return this.#leaving.signal;
  }

  /** The sandbox is in use at this moment. */
  touch(): void {
    this.#record.touch();
  }

  /** Takes up the sandbox where an earlier edge left it. Resolves when it is ready, failed or gone. */
  async recover(): Promise<void> {
    const { state } = this;
    if (state === "failed" || isLive(state)) this.commands.recover();
    if (state === "failed") this.commands.lose("agent-lost");
    else if (isLive(state)) await this.#queue.run("event", () => this.#recoverLive());
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
    this.#connection.drop();
    this.#connection.refuse(new SandboxError("Unavailable", "the node is closing"));
    await this.#queue.run("verb", () => Promise.resolve());
  }

  async #bringUp(origin?: Origin): Promise<void> {
    try {
      const handle = await this.#make(origin);
      const readyAtMs = this.#parts.clock.now();
      if (origin?.paused === true) {
        this.#record.change("paused", { handle, readyAtMs });
        this.#record.releaseCompute();
        this.#lifetime.look();
      } else {
        this.#record.change("ready", { handle, readyAtMs });
        this.#isReady();
      }
      this.#created.resolve();
    } catch (error) {
      const typed = asSandboxError(error);
      if (this.#closed) {
        this.#created.reject(typed);
        return;
      }
      if (this.state === "creating")
        this.#record.change("destroying", { reason: `its creation failed: ${typed.message}` });
      await this.#tearDown().catch(() => undefined);
      this.#created.reject(typed);
    }
  }

  /** Everything between the intent and the answer of the agent, within the time for creating. */
  #make(origin?: Origin): Promise<Handle> {
    return this.#within(async (signal) => {
      await this.#backend.check(this.spec);
      this.#record.insert();
      // Not given up while that is under way: what is copied after a removal nobody would remove.
      const carried = await origin?.copied;
      if (carried !== undefined) await this.commands.receive(carried);
      if (origin?.paused === true) return await this.#pauses.keep(signal);
      const handle = await this.#backend.create(this.spec, { slot: this.slot, copied: origin?.content }, signal);
      signal.throwIfAborted();
      await this.#connection.meet(handle, { isCopy: carried !== undefined, signal });
      signal.throwIfAborted();
      return handle;
    });
  }

  #within<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { clock, config } = this.#parts;
    return within({ clock, limitMs: config.createTimeoutMs, leaving: this.#leaving.signal }, work);
  }

  /** It runs, and calls may come. */
  #isReady(): void {
    this.touch();
    if (this.#connection.link === undefined) this.#agentLost();
    this.#lifetime.look();
  }

  #agentLost(): void {
    if (this.state !== "ready" || this.#closed) return;
    this.#connection.awaitNext();
    void this.#queue.run("event", () => this.#reachAgain());
  }

  async #reachAgain(): Promise<void> {
    const { handle } = this.#record.row;
    if (this.state !== "ready" || handle === undefined || this.#closed) return;
    try {
      await this.#connection.reach(handle);
    } catch (error) {
      await this.#fail(error);
    }
  }

  async #recoverLive(): Promise<void> {
    try {
      this.#oomKills = new OomKills(this.commands.countCause("out-of-memory"));
      if (this.state === "pausing") this.#record.change("resuming");
      if (this.state === "resuming") return await this.#pauses.finish();
      const before = this.#record.row.handle;
      const handle = before === undefined ? undefined : await this.#backend.recover(before);
      if (handle === undefined) throw new SandboxError("SandboxLost", "it did not survive while its node was away");
      if (this.state === "paused") return;
      await this.#connection.reach(handle);
      this.touch();
    } catch (error) {
      await this.#fail(error);
    }
  }

  /** The sandbox is dead: gives its compute back, keeps its files. */
  async #fail(error: unknown): Promise<void> {
    // A removal that began meanwhile ends everything by itself.
    if (this.#closed || !isLive(this.state)) return;
    const typed = asSandboxError(error);
    const { log } = this.#parts;
    log.warn({ sandbox: this.spec.id, err: error }, "a sandbox was lost");
    this.#record.change("failed", { reason: typed.message });
    this.#connection.drop();
    this.commands.lose("agent-lost");
    this.#connection.refuse(new SandboxError("SandboxLost", `the sandbox failed: ${typed.message}`, { cause: error }));
    try {
      await this.#backend.kill(this.spec.id);
    } catch (failure) {
      log.warn({ sandbox: this.spec.id, err: failure }, "cannot end the processes of a failed sandbox");
      return;
    }
    this.#record.releaseCompute();
  }

  /** Removes everything, from any state; repeats are harmless. Rejects when something could not be removed, and tries again. */
  async #tearDown(): Promise<void> {
    if (this.state === "destroyed" || this.#closed) return;
    const { rows, timers, log } = this.#parts;
    const { id } = this.spec;
    this.#lifetime[Symbol.dispose]();
    this.commands.lose("sandbox-stopped");
    this.#connection.drop();
    this.#connection.refuse(new SandboxError("SandboxLost", "the sandbox was destroyed"));
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
    this.#record.change("destroyed");
    this.#record.release();
    this.#parts.gone(id);
  }

  #removeSoon(reason: string): void {
    // A failure is logged and tried again where it happens.
    this.destroy(reason).catch(() => undefined);
  }

  get #pauseHost(): PauseHost {
    return {
      backend: this.#backend,
      record: this.#record,
      connection: this.#connection,
      within: (work) => this.#within(work),
      ready: () => this.#isReady(),
      fail: (error) => this.#fail(error),
    };
  }

  /** One that is paused is not idle: it waits. */
  get idleSinceMs(): number | undefined {
    return this.#users.any || this.state !== "ready" ? undefined : this.#record.row.lastActivityAtMs;
  }

  async #tookOomKill(killed: KilledCommand): Promise<boolean> {
    const { handle } = this.#record.row;
    return handle !== undefined && this.#oomKills.claim(await this.#backend.usage(handle), killed);
  }

  get #outputDir(): string {
    return join(this.#parts.config.dataDir, "output", this.#record.row.spec.id);
  }

  get #againKey(): string {
    return `remove ${this.spec.id}`;
  }
}

/** It has an agent, or will have it again. */
function isLive(state: SandboxState): boolean {
  return state === "ready" || state === "pausing" || state === "paused" || state === "resuming";
}
