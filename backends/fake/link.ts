import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestHello, GuestLink, TaskReport, TaskSink, TaskSpec } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";
import type { FakeSandbox } from "./host.ts";
import { programOf } from "./programs.ts";
import { FakeTask, Killed } from "./task.ts";

/** A connection to a fake sandbox. What the guest says arrives in later turns, in order, and not at all once it is closed. */
export class FakeLink implements GuestLink {
  readonly hello: GuestHello;
  readonly closed: Promise<void>;
  readonly #sandbox: FakeSandbox;
  readonly #clock: Clock;
  readonly #lost = Promise.withResolvers<never>();
  readonly #resolveClosed: () => void;
  #posts: (() => void)[] = [];
  #open = true;

  constructor(sandbox: FakeSandbox, clock: Clock) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#sandbox = sandbox;
    this.#clock = clock;
    this.hello = { protocol: 1, bootId: sandbox.bootId, pid: 1 };
    this.#lost.promise.catch(() => undefined);
    // A newer connection replaces an older one.
    sandbox.breakLinks();
    sandbox.links.add(this);
  }

  async start(number: number, task: TaskSpec, sink: TaskSink): Promise<{ readonly pid: number }> {
    this.#requireOpen();
    const program = programOf(task, this.#sandbox);
    const fake = new FakeTask(number, this.#sandbox.nextPid());
    this.#sandbox.tasks.set(number, fake);
    fake.attach(this, sink, { stdout: 0, stderr: 0 });
    const limit =
      task.timeLimitMs === undefined
        ? undefined
        : this.#clock.after(task.timeLimitMs, () => fake.kill(new Killed("SIGKILL", "timeout")));
    const sandbox = this.#sandbox;
    const sleep = (delayMs: number) => new Promise<void>((resolve) => this.#clock.after(delayMs, resolve));
    const exhaustMemory = () => {
      sandbox.oomKills += 1;
      throw new Killed("SIGKILL");
    };
    void fake.run(program, { sleep, exhaustMemory }).then(() => limit?.[Symbol.dispose]());
    return Promise.race([Promise.resolve({ pid: fake.pid }), this.#lost.promise]);
  }

  async list(): Promise<readonly TaskReport[]> {
    this.#requireOpen();
    return [...this.#sandbox.tasks.values()].map((task) => task.report);
  }

  attach(number: number, from: Readonly<Record<OutputStream, number>>, sink: TaskSink): void {
    this.#requireOpen();
    this.#sandbox.tasks.get(number)?.attach(this, sink, from);
  }

  async writeStdin(number: number, offset: number, bytes: Uint8Array): Promise<void> {
    this.#requireOpen();
    this.#sandbox.tasks.get(number)?.writeStdin(offset, bytes);
  }

  closeStdin(number: number): void {
    if (this.#open) this.#sandbox.tasks.get(number)?.closeStdin();
  }

  async takeInput(number: number): Promise<number> {
    this.#requireOpen();
    return this.#sandbox.tasks.get(number)?.inputBytes ?? 0;
  }

  resize(): void {
    // No program of the fake guest has a terminal: `check` of a start refuses them.
  }

  signal(number: number, signal: number): void {
    if (!this.#open) return;
    const name = signal === 9 ? "SIGKILL" : signal === 15 ? "SIGTERM" : "SIGINT";
    this.#sandbox.tasks.get(number)?.kill(new Killed(name));
  }

  acknowledge(number: number, stream: OutputStream, offset: number): void {
    if (this.#open) this.#sandbox.tasks.get(number)?.acknowledge(stream, offset);
  }

  forget(number: number): void {
    if (!this.#open) return;
    this.#sandbox.tasks.get(number)?.abandon();
    this.#sandbox.tasks.delete(number);
  }

  async ping(): Promise<void> {
    this.#requireOpen();
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#posts = [];
    this.#sandbox.links.delete(this);
    for (const task of this.#sandbox.tasks.values()) task.detach();
    this.#lost.reject(lost());
    queueMicrotask(this.#resolveClosed);
  }

  /** For tasks: says something to the edge. */
  post(message: () => void): void {
    if (!this.#open) return;
    if (this.#posts.push(message) === 1) setImmediate(() => this.#deliver());
  }

  #deliver(): void {
    const posts = this.#posts;
    this.#posts = [];
    for (const message of posts) if (this.#open) message();
  }

  #requireOpen(): void {
    if (!this.#open) throw lost();
  }
}

function lost(): SandboxError {
  return new SandboxError("Unavailable", "the connection to the agent is gone");
}
