import type { GuestLink, TaskEnd, TaskSink } from "#core/guest.ts";
import type { CommandId } from "#core/ids.ts";
import type { CommandInfo, CommandSpec, ExitCause, ExitStatus, OutputStream, StreamInfo } from "#core/sandbox.ts";
import { InputClaims } from "#edge/commands/input-claims.ts";
import type { KilledCommand } from "#edge/commands/oom-kills.ts";
import type { CommandEnd } from "#edge/commands/rows.ts";
import type { Receipts } from "#edge/copies/receipts.ts";
import type { OutputLog } from "#edge/output/log.ts";

/** What a live command needs of the sandbox around it. */
export interface CommandHost {
  now(): number;
  /** What the agent is told of outputs and ends that it may forget. */
  readonly receipts: Pick<Receipts, "acknowledge" | "forget">;
  /** Whether it was for want of memory that this command was killed. Takes the kill: it explains no other death. */
  tookOomKill(killed: KilledCommand): Promise<boolean>;
  /** Records the end; called once. */
  recordEnd(command: LiveCommand, end: CommandEnd): void;
  /** Records streams that changed after the end. */
  recordStreams(command: LiveCommand, streams: Readonly<Record<OutputStream, StreamInfo>>): void;
  /** The agent knows nothing of it any more, and the journal all. */
  settled(command: LiveCommand): void;
  /** What the sandbox sent cannot be kept. */
  warn(facts: Readonly<Record<string, unknown>>, message: string): void;
}

/** What makes a command. */
export interface CommandIdentity {
  readonly id: CommandId;
  readonly number: number;
  readonly spec: CommandSpec;
  readonly startedAtMs: number;
}

const STREAMS = ["stdout", "stderr"] as const satisfies readonly OutputStream[];

/** A command whose task the agent still knows: takes its output and its end, and tells those who wait. */
export class LiveCommand implements TaskSink {
  readonly identity: CommandIdentity;
  readonly logs: Readonly<Record<OutputStream, OutputLog>>;
  /** As seen in the sandbox; 0 until the agent has said it. */
  pid = 0;
  /** Bytes of stdin the agent took; undefined after a restart, when only the agent knows. */
  stdinTaken: number | undefined = 0;
  /** Who may write to its input. */
  readonly input = new InputClaims();
  /** A signal that callers sent: a death by it needs no other explanation. */
  killedByCaller = false;
  readonly #host: CommandHost;
  readonly #acknowledged: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #finished = Promise.withResolvers<void>();
  readonly #done = Promise.withResolvers<void>();
  #status: ExitStatus | undefined;
  #finishing = false;
  /** The journal refused the end: the agent has to keep it. */
  #unrecorded = false;
  #settled = false;
  /** The streams as they were when the logs were let go. */
  #final: Readonly<Record<OutputStream, StreamInfo>> | undefined;
  #holds = 1;

  constructor(host: CommandHost, identity: CommandIdentity, logs: Readonly<Record<OutputStream, OutputLog>>) {
    this.#host = host;
    this.identity = identity;
    this.logs = logs;
    for (const stream of STREAMS) logs[stream].watch(() => this.#acknowledge(stream));
  }

  get status(): ExitStatus | undefined {
    return this.#status;
  }

  /** Resolves at the leader's end. */
  get finished(): Promise<void> {
    return this.#finished.promise;
  }

  /** Resolves at the end that whoever waits for it waits for: the leader's, or that of its pipes as well. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  get isDone(): boolean {
    if (this.#status === undefined) return false;
    return this.identity.spec.waitFor !== "pipes" || STREAMS.every((stream) => this.logs[stream].ended);
  }

  get info(): CommandInfo {
    return {
      id: this.identity.id,
      argv: this.identity.spec.argv,
      pid: this.pid,
      terminal: this.identity.spec.terminal,
      waitFor: this.identity.spec.waitFor,
      session: this.identity.spec.session?.name,
      startedAtMs: this.identity.startedAtMs,
      status: this.#status,
      ...this.#streams,
    };
  }

  /** What its outputs take of the sandbox's budget. */
  get keptBytes(): number {
    return this.logs.stdout.budgetedBytes + this.logs.stderr.budgetedBytes;
  }

  /** True when no more output can come. */
  get over(): boolean {
    return this.#settled;
  }

  /** Keeps the logs readable until disposed. */
  retain(): Disposable {
    this.#holds += 1;
    return { [Symbol.dispose]: () => this.#release() };
  }

  /** Takes the task over from a link that knows it, after a reconnection or a restart. */
  attach(link: GuestLink, pid: number): void {
    this.pid = pid;
    for (const stream of STREAMS) this.#acknowledged[stream] = this.logs[stream].safe;
    link.attach(this.identity.number, { ...this.#acknowledged }, this);
  }

  /** An end recorded by an earlier process; only streams are left to come. */
  restore(status: ExitStatus): void {
    this.#finishing = true;
    this.#status = status;
    this.#finished.resolve();
    this.#tellDone();
  }

  started(pid: number): void {
    this.pid = pid;
  }

  output(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    this.logs[stream].append(offset, bytes);
  }

  ended(stream: OutputStream): void {
    this.logs[stream].end();
    if (this.#status !== undefined) this.#recordStreams();
    this.#tellDone();
    this.#settle();
  }

  end(end: TaskEnd): void {
    if (this.#finishing) {
      // Told again after a reconnection.
      this.#settle();
      return;
    }
    this.#finishing = true;
    if (end.cause !== "signaled" || end.signal !== "SIGKILL" || this.killedByCaller) {
      this.#finish({ ...end });
      return;
    }
    const unknown = (error: unknown): boolean => {
      this.#host.warn({ err: error, command: this.identity.id }, "cannot tell why a command was killed");
      return false;
    };
    void this.#host
      .tookOomKill({ startedAtMs: this.identity.startedAtMs, maxRssKiB: end.maxRssKiB })
      .catch(unknown)
      .then((oom) => this.#finish(oom ? { ...end, cause: "out-of-memory" } : { ...end }));
  }

  /** The task is gone without a word from the agent. */
  lose(cause: ExitCause): void {
    if (this.#status === undefined) {
      this.#finishing = true;
      const wallMs = Math.max(0, this.#host.now() - this.identity.startedAtMs);
      this.#finish({ cause, code: undefined, signal: undefined, wallMs, cpuMs: 0, maxRssKiB: 0 });
    }
    if (this.#settled) return;
    for (const stream of STREAMS) this.logs[stream].end();
    this.#tellDone();
    this.#recordStreams();
    this.#conclude();
  }

  /** The edge closes and leaves the task to the next one. Readers and waiters are let go. */
  abandon(): void {
    this.#finishing = true;
    this.#settled = true;
    for (const stream of STREAMS) this.logs[stream].end();
    this.#finished.resolve();
    this.#done.resolve();
    this.#release();
  }

  get #streams(): Readonly<Record<OutputStream, StreamInfo>> {
    return this.#final ?? { stdout: this.logs.stdout.info, stderr: this.logs.stderr.info };
  }

  #tellDone(): void {
    if (this.isDone) this.#done.resolve();
  }

  #recordStreams(): void {
    try {
      this.#host.recordStreams(this, this.#streams);
    } catch (error) {
      this.#host.warn({ err: error, command: this.identity.id }, "cannot record the output of a command");
    }
  }

  #finish(status: ExitStatus): void {
    if (this.#status !== undefined) return;
    this.#status = status;
    const small = { stdout: this.logs.stdout.small, stderr: this.logs.stderr.small };
    try {
      this.#host.recordEnd(this, { status, streams: this.#streams, small, keptBytes: this.keptBytes });
      for (const stream of STREAMS) this.logs[stream].recorded();
    } catch (error) {
      this.#unrecorded = true;
      this.#host.warn({ err: error, command: this.identity.id }, "cannot record the end of a command");
    }
    this.#finished.resolve();
    this.#tellDone();
    this.#settle();
    if (!this.#settled) for (const stream of STREAMS) this.#acknowledge(stream);
  }

  #acknowledge(stream: OutputStream): void {
    const { safe } = this.logs[stream];
    if (this.#settled || safe <= this.#acknowledged[stream]) return;
    this.#acknowledged[stream] = safe;
    this.#host.receipts.acknowledge(this.identity.number, stream, safe);
    if (this.#status !== undefined) this.#settle();
  }

  /** Lets the agent forget the task once nothing of it exists there alone. */
  #settle(): void {
    if (this.#settled || this.#unrecorded || this.#status === undefined) return;
    for (const stream of STREAMS) {
      const log = this.logs[stream];
      if (!log.ended || log.safe < log.seen) return;
    }
    this.#host.receipts.forget(this.identity.number);
    this.#conclude();
  }

  #conclude(): void {
    this.#settled = true;
    this.#host.settled(this);
    this.#release();
  }

  #release(): void {
    this.#holds -= 1;
    if (this.#holds > 0) return;
    this.#final = this.#streams;
    for (const stream of STREAMS) this.logs[stream][Symbol.dispose]();
  }
}
