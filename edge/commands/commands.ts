import { rmSync } from "node:fs";
import { join } from "node:path";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { GuestLink, TaskReport } from "#core/guest.ts";
import { type CommandId, newCommandId } from "#core/ids.ts";
import type { CommandPage, CommandPageRequest } from "#core/node.ts";
import { canonical } from "#core/pack.ts";
import type { CommandInfo, CommandSpec, ExitCause, OutputStream, SandboxSpec, StreamInfo } from "#core/sandbox.ts";
import { type CommandHost, LiveCommand } from "#edge/commands/command.ts";
import { KeptCommands } from "#edge/commands/kept.ts";
import type { KilledCommand } from "#edge/commands/oom-kills.ts";
import { commandPage } from "#edge/commands/page.ts";
import { type CommandRow, type CommandRows, recordedCommand } from "#edge/commands/rows.ts";
import { startError } from "#edge/commands/start-error.ts";
import { commandTask } from "#edge/commands/tasks.ts";
import { type Carried, type Carrying, carry, receive } from "#edge/copies/carried.ts";
import { Receipts } from "#edge/copies/receipts.ts";
import { OutputBudget } from "#edge/output/budget.ts";
import { OutputLog, type OutputLogOptions } from "#edge/output/log.ts";

/** What the commands of a sandbox need of it. */
export interface CommandsHost {
  readonly spec: SandboxSpec;
  readonly rows: CommandRows;
  /** Where the files of outputs go. */
  readonly outputDir: string;
  readonly outputCapBytes: number;
  /** Of all commands together. */
  readonly outputBudgetBytes: number;
  now(): number;
  link(): GuestLink | undefined;
  tookOomKill(killed: KilledCommand): Promise<boolean>;
  /** Keeps the sandbox from being idle until disposed. */
  busy(): Disposable;
  warn(facts: Readonly<Record<string, unknown>>, message: string): void;
}

/** A command, and its live form while the agent knows it. */
export type FoundCommand = CommandInfo & { readonly live: LiveCommand | undefined };

/** A command's logs, held open for a reader. */
export interface OpenLogs extends Disposable {
  readonly logs: Readonly<Record<OutputStream, OutputLog>>;
  /** True when no more output can come. */
  over(): boolean;
}

/**
 * The commands of one sandbox. Those the agent still knows are in memory, the others in the journal alone, so that a sandbox
 * costs nothing for what it once ran.
 */
export class Commands {
  readonly #host: CommandsHost;
  readonly #live = new Map<CommandId, LiveCommand>();
  readonly #byKey = new Map<string, LiveCommand>();
  readonly #starts = new Map<LiveCommand, Promise<void>>();
  readonly #busy = new Map<LiveCommand, Disposable>();
  readonly #budget: OutputBudget;
  readonly #kept: KeptCommands;
  readonly #receipts: Receipts;
  #lastNumber = 0;
  #closed = false;

  constructor(host: CommandsHost) {
    this.#host = host;
    this.#kept = new KeptCommands(host.rows);
    this.#receipts = new Receipts(() => (this.#closed ? undefined : host.link()));
    this.#budget = new OutputBudget(host.outputBudgetBytes, () => this.#dropOldest());
  }

  /** Those whose leader has not ended. */
  get running(): number {
    return this.#busy.size;
  }

  /** Those whose record is kept. */
  get recorded(): number {
    return this.#kept.recorded;
  }

  /** A number for a task that the agent has not seen yet. */
  nextNumber(): number {
    this.#lastNumber += 1;
    return this.#lastNumber;
  }

  /** Resolves when the program runs. A repeated idempotency key gives the command it started before. */
  async start(spec: CommandSpec, link: GuestLink): Promise<FoundCommand> {
    const earlier = this.#earlier(spec);
    if (earlier !== undefined) {
      if (earlier.live !== undefined) await this.#starts.get(earlier.live);
      return earlier.live === undefined ? earlier : { ...earlier.live.info, live: earlier.live };
    }
    const session = spec.session?.role === "line" ? this.#shell(spec.session.name).identity.number : undefined;
    const command = this.#insert(spec);
    const start = this.#launch(command, link, session);
    this.#starts.set(command, start);
    try {
      await start;
    } finally {
      this.#starts.delete(command);
    }
    return { ...command.info, live: command };
  }

  /** The sessions, one of each name, the latest. */
  sessions(): FoundCommand[] {
    return this.#host.rows.sessions().map((id) => this.find(id));
  }

  /** The latest session of that name. */
  session(name: string): FoundCommand | undefined {
    const id = this.#host.rows.session(name);
    return id === undefined ? undefined : this.find(id);
  }

  /** Takes a command that has ended, and its output, out of the record. */
  discard(id: CommandId): void {
    const live = this.#live.get(id);
    const { number } = live?.identity ?? this.#row(id);
    this.#budget.give((live ?? this.#row(id)).keptBytes);
    if (live !== undefined) {
      this.#receipts.forget(number);
      live.abandon();
      this.#remove(live);
    }
    this.#kept.delete(number);
    this.#removeFiles(id);
  }

  /** The shell that lines of that name go to. Throws `NotFound`, or `FailedPrecondition` when it has ended. */
  #shell(name: string): LiveCommand {
    const found = this.session(name);
    if (found === undefined) {
      throw new SandboxError("NotFound", `no session ${JSON.stringify(name)} in sandbox ${this.#host.spec.id}`, {
        hint: "open it first",
      });
    }
    if (found.live !== undefined && found.status === undefined) return found.live;
    throw new SandboxError("FailedPrecondition", `the session ${JSON.stringify(name)} has ended`, {
      hint: "open a new one: its variables and working directory are gone",
    });
  }

  /** Throws `InvalidArgument` for a cursor that no page gave. */
  page(request: CommandPageRequest): CommandPage {
    return commandPage(this.#host.rows, request, (id) => this.#live.get(id)?.info);
  }

  /** Throws `NotFound`. */
  find(id: CommandId): FoundCommand {
    const live = this.#live.get(id);
    if (live !== undefined) return { ...live.info, live };
    return { ...recordedCommand(this.#row(id)), live: undefined };
  }

  /** Throws `NotFound`. */
  openLogs(id: CommandId): OpenLogs {
    const live = this.#live.get(id);
    if (live !== undefined) {
      const retained = live.retain();
      return { logs: live.logs, over: () => live.over, [Symbol.dispose]: () => retained[Symbol.dispose]() };
    }
    const logs = this.#reopen(this.#row(id));
    return {
      logs,
      over: () => true,
      [Symbol.dispose]: () => {
        logs.stdout[Symbol.dispose]();
        logs.stderr[Symbol.dispose]();
      },
    };
  }

  /** After a restart of the edge: takes up what the journal has; `reattach` tells then how it is. */
  recover(): void {
    this.#restoreNumbers();
    for (const row of this.#host.rows.open()) {
      const command = this.#adopt(row, this.#reopen(row));
      // An earlier process may have fed it.
      command.stdinTaken = undefined;
      if (row.status !== undefined) command.restore(row.status);
    }
  }

  /** What runs, for copies of the sandbox: until they are made, the agent forgets nothing. */
  carry(): Carrying {
    const { rows, outputDir } = this.#host;
    return carry({ rows, outputDir, held: this.#receipts.hold(), pidOf: (id) => this.#live.get(id)?.pid });
  }

  /** The sandbox is a copy in which this runs: `reattach` tells then how it is. */
  async receive(carried: Carried): Promise<void> {
    await receive(carried, this.#host.rows, this.#host.outputDir);
    this.recover();
  }

  /** On a new link to the same agent: takes over what it still runs and records what ended meanwhile. */
  reattach(link: GuestLink, reports: readonly TaskReport[]): void {
    this.#receipts.renew();
    this.#lastNumber = reports.reduce((most, { number }) => Math.max(most, number), this.#lastNumber);
    for (const command of [...this.#live.values()]) this.#reunite(command, link, reports);
    this.#forgetStrangers(link, reports);
  }

  /** The agent is gone, and everything it ran. */
  lose(cause: ExitCause): void {
    for (const command of [...this.#live.values()]) command.lose(cause);
  }

  /** Ended commands with this cause. */
  countCause(cause: ExitCause): number {
    return this.#host.rows.countCause(cause);
  }

  /** Stops recording: what happens from now on is found in the agent by the next edge. */
  close(): void {
    this.#closed = true;
    for (const command of [...this.#live.values()]) {
      command.abandon();
      this.#remove(command);
    }
  }

  #restoreNumbers(): void {
    const counted = this.#host.rows.count();
    this.#kept.restore(counted);
    this.#budget.adopt(counted.keptBytes);
    this.#lastNumber = Math.max(counted.highest, this.#lastNumber);
  }

  /** Looks and answers at once: two starts with one key must not both find nothing. */
  #earlier(spec: CommandSpec): FoundCommand | undefined {
    if (spec.idempotencyKey === undefined) return undefined;
    const live = this.#byKey.get(spec.idempotencyKey);
    const row = live === undefined ? this.#host.rows.byKey(spec.idempotencyKey) : undefined;
    const before = live?.identity.spec ?? row?.spec;
    if (before !== undefined && canonical(before) !== canonical(spec)) {
      throw new SandboxError("AlreadyExists", "the idempotency key was used for another command", {
        hint: "use a new key for a new command",
      });
    }
    if (live !== undefined) return { ...live.info, live };
    return row === undefined ? undefined : { ...recordedCommand(row), live: undefined };
  }

  #insert(spec: CommandSpec): LiveCommand {
    this.#prune();
    const row: CommandRow = {
      number: this.nextNumber(),
      id: newCommandId(),
      spec,
      capBytes: spec.outputCapBytes ?? this.#host.outputCapBytes,
      pid: undefined,
      startedAtMs: this.#host.now(),
      status: undefined,
      streams: undefined,
      small: { stdout: undefined, stderr: undefined },
      keptBytes: 0,
    };
    this.#kept.insert(row);
    return this.#adopt(row, this.#fresh(row));
  }

  async #launch(command: LiveCommand, link: GuestLink, session?: number): Promise<void> {
    const { number, spec } = command.identity;
    const task = commandTask(this.#host.spec, spec, session);
    try {
      const { pid } = await link.start(number, task, command);
      command.pid = pid;
      // The record of an end has it, too.
      if (!this.#closed && command.status === undefined) this.#host.rows.started(number, pid);
    } catch (error) {
      // A connection that broke on the way leaves it open whether the task runs: the next link tells, and settles it.
      if (asSandboxError(error).kind !== "Unavailable") this.#erase(command);
      throw startError(error, task);
    }
  }

  /** Makes the live form of a row. */
  #adopt(row: CommandRow, logs: Readonly<Record<OutputStream, OutputLog>>): LiveCommand {
    const identity = { id: row.id, number: row.number, spec: row.spec, startedAtMs: row.startedAtMs };
    const command = new LiveCommand(this.#commandHost, identity, logs);
    // An earlier process may have kept more than the row says.
    this.#budget.adopt(command.keptBytes - row.keptBytes);
    command.pid = row.pid ?? 0;
    this.#live.set(row.id, command);
    if (row.spec.idempotencyKey !== undefined) this.#byKey.set(row.spec.idempotencyKey, command);
    // A shell that waits for lines is no work: a session that was forgotten must not keep its sandbox for ever.
    const idle = row.status !== undefined || row.spec.session?.role === "shell";
    if (!idle) this.#busy.set(command, this.#host.busy());
    return command;
  }

  #reunite(command: LiveCommand, link: GuestLink, reports: readonly TaskReport[]): void {
    const report = reports.find((candidate) => candidate.number === command.identity.number);
    if (report !== undefined) command.attach(link, report.pid);
    else if (command.pid === 0) this.#erase(command);
    else command.lose("agent-lost");
  }

  /** File operations of an earlier edge, and starts nobody recorded. */
  #forgetStrangers(link: GuestLink, reports: readonly TaskReport[]): void {
    const known = new Set([...this.#live.values()].map((command) => command.identity.number));
    for (const report of reports) if (!known.has(report.number)) link.forget(report.number);
  }

  /** It never ran. */
  #erase(command: LiveCommand): void {
    this.#remove(command);
    if (this.#closed) return;
    this.#budget.give(command.keptBytes);
    this.#kept.delete(command.identity.number);
  }

  #remove(command: LiveCommand): void {
    this.#live.delete(command.identity.id);
    const key = command.identity.spec.idempotencyKey;
    if (key !== undefined) this.#byKey.delete(key);
    this.#idle(command);
  }

  #idle(command: LiveCommand): void {
    this.#busy.get(command)?.[Symbol.dispose]();
    this.#busy.delete(command);
  }

  get #commandHost(): CommandHost {
    return {
      now: () => this.#host.now(),
      receipts: this.#receipts,
      tookOomKill: (killed) => this.#host.tookOomKill(killed),
      warn: (facts, message) => this.#host.warn(facts, message),
      recordEnd: (command, end) => {
        if (!this.#closed)
          this.#host.rows.ended(command.identity.number, { ...end, pid: command.pid }, this.#host.now());
        this.#idle(command);
      },
      recordStreams: (command, streams: Readonly<Record<OutputStream, StreamInfo>>) => {
        if (!this.#closed) this.#host.rows.streams(command.identity.number, streams, command.keptBytes);
      },
      settled: (command) => this.#remove(command),
    };
  }

  #row(id: CommandId): CommandRow {
    const row = this.#host.rows.byId(id);
    if (row === undefined) throw new SandboxError("NotFound", `no command ${id} in sandbox ${this.#host.spec.id}`);
    return row;
  }

  #reopen(row: CommandRow): Readonly<Record<OutputStream, OutputLog>> {
    const reopen = (stream: OutputStream) =>
      OutputLog.reopen(this.#logOptions(row, stream), row.small[stream], row.streams?.[stream]);
    return { stdout: reopen("stdout"), stderr: reopen("stderr") };
  }

  /** Logs of a command that has not run: no file is looked for. */
  #fresh(row: CommandRow): Readonly<Record<OutputStream, OutputLog>> {
    return {
      stdout: new OutputLog(this.#logOptions(row, "stdout")),
      stderr: new OutputLog(this.#logOptions(row, "stderr")),
    };
  }

  #logOptions(row: CommandRow, stream: OutputStream): OutputLogOptions {
    const path = this.#path(row.id, stream);
    const onStoreError = (error: unknown) =>
      this.#host.warn({ err: error, path }, "cannot store output; it is dropped");
    return { path, capBytes: row.capBytes, budget: this.#budget, onStoreError };
  }

  #path(id: CommandId, stream: OutputStream): string {
    return join(this.#host.outputDir, `${id}.${stream}`);
  }

  #prune(): void {
    for (const row of this.#kept.surplus()) {
      if (this.#live.has(row.id)) continue;
      this.#kept.delete(row.number);
      this.#budget.give(row.keptBytes);
      this.#removeFiles(row.id);
    }
  }

  /** Drops the outputs of the command that ended first; says what they took of the budget. Readers that have them open read on. */
  #dropOldest(): number {
    for (const row of this.#host.rows.keeping()) {
      if (this.#live.has(row.id)) continue;
      this.#host.rows.dropOutput(row);
      this.#removeFiles(row.id);
      return row.keptBytes;
    }
    return 0;
  }

  #removeFiles(id: CommandId): void {
    for (const stream of ["stdout", "stderr"] as const) rmSync(this.#path(id, stream), { force: true });
  }
}
