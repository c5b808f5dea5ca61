import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SandboxError } from "#core/errors.ts";
import type { GuestHello, GuestLink, TaskReport, TaskSink, TaskSpec } from "#core/guest.ts";
import type { OutputStream, TerminalSize } from "#core/sandbox.ts";
import { connectMachine, type MachineControl, MachineFailure } from "#guest/protocol/machine.ts";
import { hostsFile } from "#host/cradle/names.ts";
import type { Computer } from "#host/vmm/computer.ts";
import { MACHINE_PORTS } from "#host/vmm/vmm.ts";

/** A call waits for the agent of a system that starts, and is answered before its own usual limit. */
const START_WAIT_MS = 45_000;
/** One that never answered has no tasks, and is not waited for: its system starts, or has none. */
const LIST_WAIT_MS = 3_000;
/**
 * What runs is asked for again and again for so long, from when an agent that had answered is looked for anew. Less than the edge tries: a system that hangs has lost what ran in it, and
 * not its computer.
 */
export const PATIENCE_MS = 18_000;
const AGAIN_MS = 500;

/**
 * A file that is there while a computer has the time and the randomness of before a pause: whoever reaches its agent gives it new ones. That of a copy has the host name that it is
 * to have.
 */
export const STALE = "stale";

/** A file that is there while the agent has answered and its system has not gone down since: what it runs is asked for with patience. */
export const ANSWERED = "answered";

type AgentsComputer = Pick<Computer, "ended" | "isOn" | "onAgentGone">;

/**
 * The agent of a computer, which answers when its system has started, and goes when that goes down: then this link closes, and the next one waits for
 * the agent anew. It is there as long as the computer is.
 */
export class ComputerAgent implements GuestLink {
  readonly hello: GuestHello;
  readonly closed: Promise<void>;
  readonly #left = new AbortController();
  readonly #reaching: Promise<GuestLink>;
  readonly #computer: AgentsComputer;
  readonly #dir: string;
  readonly #patientUntilMs: number;
  #inner: GuestLink | undefined;
  #control: MachineControl | undefined;

  /** `name` tells this computer from every other; up to `patientUntilMs`, on the clock of `performance`, an agent that had answered is waited for. */
  constructor(
    name: string,
    computer: AgentsComputer,
    { dir, patientUntilMs }: { readonly dir: string; readonly patientUntilMs: number },
  ) {
    this.#computer = computer;
    this.#dir = dir;
    this.#patientUntilMs = patientUntilMs;
    this.hello = { protocol: 0, bootId: name, pid: 0 };
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#left.signal.addEventListener("abort", () => resolve(), { once: true });
    void computer.ended.then(() => this.close());
    this.#reaching = this.#reach();
    this.#reaching.catch(() => undefined);
  }

  /** Whether its agent has answered. */
  get wasReached(): boolean {
    return this.#inner !== undefined;
  }

  async start(number: number, task: TaskSpec, sink: TaskSink): Promise<{ readonly pid: number }> {
    return (await this.#agent()).start(number, task, sink);
  }

  async list(): Promise<readonly TaskReport[]> {
    const leftMs = existsSync(join(this.#dir, ANSWERED)) ? this.#patientUntilMs - performance.now() : 0;
    const soon = await Promise.race([
      this.#reaching.catch(() => undefined),
      delay(Math.max(LIST_WAIT_MS, leftMs), undefined, { ref: false }),
    ]);
    return soon === undefined ? [] : soon.list();
  }

  attach(number: number, from: Readonly<Record<OutputStream, number>>, sink: TaskSink): void {
    this.#inner?.attach(number, from, sink);
  }

  async writeStdin(number: number, offset: number, bytes: Uint8Array): Promise<void> {
    await this.#answering().writeStdin(number, offset, bytes);
  }

  closeStdin(number: number): void {
    this.#inner?.closeStdin(number);
  }

  async takeInput(number: number): Promise<number> {
    return this.#answering().takeInput(number);
  }

  resize(number: number, size: TerminalSize): void {
    this.#inner?.resize(number, size);
  }

  signal(number: number, signal: number, scope: "leader" | "group"): void {
    this.#inner?.signal(number, signal, scope);
  }

  acknowledge(number: number, stream: OutputStream, offset: number): void {
    this.#inner?.acknowledge(number, stream, offset);
  }

  forget(number: number): void {
    this.#inner?.forget(number);
  }

  async ping(timeoutMs: number): Promise<void> {
    await this.#inner?.ping(timeoutMs);
  }

  close(): void {
    this.#left.abort(new SandboxError("Unavailable", "the agent of the computer is gone"));
    this.#inner?.close();
  }

  /** Gives the system the time of now, and new randomness, if its agent is reached. */
  async renew(): Promise<void> {
    await this.#control?.renew();
  }

  /** Resolves when the disk has what the system has written so far, if its agent is reached. */
  async sync(): Promise<void> {
    await this.#control?.sync();
  }

  #answering(): GuestLink {
    if (this.#inner !== undefined) return this.#inner;
    throw new SandboxError("Unavailable", "the agent of the computer does not answer", { hint: "try again" });
  }

  /** Rejects with `FailedPrecondition` when it is off, with `Unavailable` when the system takes longer to start, or has no such service. */
  async #agent(): Promise<GuestLink> {
    if (this.#inner === undefined && !(await this.#computer.isOn())) {
      throw new SandboxError("FailedPrecondition", "the computer is off: nobody answers in it", {
        hint: "dsec power ID on",
      });
    }
    const late = delay(START_WAIT_MS, undefined, { ref: false });
    const link = await Promise.race([this.#reaching, late]);
    if (link !== undefined) return link;
    throw new SandboxError("Unavailable", `no agent answers in the computer within ${START_WAIT_MS / 1_000} s`, {
      hint: "its system may still start, or hang: look at its screen",
    });
  }

  async #reach(): Promise<GuestLink> {
    const { signal } = this.#left;
    for (;;) {
      signal.throwIfAborted();
      try {
        return await this.#reachOnce();
      } catch {
        // The service inside may be before its agent, or between two.
        await delay(AGAIN_MS, undefined, { signal });
      }
    }
  }

  /** Waits for as long as it takes that somebody inside opens the port. */
  async #reachOnce(): Promise<GuestLink> {
    const { signal } = this.#left;
    const dir = this.#dir;
    const control = await connectMachine(join(dir, MACHINE_PORTS.control), signal);
    using opened = new DisposableStack();
    opened.defer(() => control.close());
    if (existsSync(join(dir, STALE))) await freshen(control, join(dir, STALE));
    const inner = await control.connectAgent(join(dir, MACHINE_PORTS.agent), signal);
    opened.move();
    this.#inner = inner;
    this.#control = control;
    writeFileSync(join(dir, ANSWERED), "");
    const gone = this.#computer.onAgentGone(() => {
      rmSync(join(dir, ANSWERED), { force: true });
      this.close();
    });
    for (const end of [inner.closed, control.closed]) void end.then(() => this.close());
    signal.addEventListener("abort", () => {
      gone[Symbol.dispose]();
      control.close();
    });
    return inner;
  }
}

/** Makes a computer that goes on one of now, and one that is a copy one of its own. */
async function freshen(control: MachineControl, mark: string): Promise<void> {
  await control.renew();
  const hostname = readFileSync(mark, "utf8");
  try {
    if (hostname !== "") await control.name(hostname, hostsFile(hostname));
  } catch (error) {
    // Its system is its own: one whose agent is older, or that has no such files, is called as it was.
    if (!(error instanceof MachineFailure)) throw error;
  }
  rmSync(mark, { force: true });
}
