import { createHash } from "node:crypto";
import { SandboxError } from "#core/errors.ts";
import type { FileChange, FileDigest, FileRead, FileWatch, FileWrite, TreeWrite } from "#core/files.ts";
import type { FunctionCall, HeldResult } from "#core/functions.ts";
import {
  type CommandId,
  type EdgeId,
  type InvocationId,
  newCommandId,
  newInvocationId,
  parseEdgeId,
  type SandboxId,
} from "#core/ids.ts";
import type {
  CommandPage,
  CommandPageRequest,
  CommandResult,
  InputEvent,
  InvocationWait,
  Node,
  NodeInfo,
  OutputChunk,
  OutputRead,
  RunWait,
  SandboxFilter,
  StdinWrite,
  UsageRead,
} from "#core/node.ts";
import type { ForkChild, Forked, ForkHow, PackedDiff, PackOptions } from "#core/packing.ts";
import type { PortPiece } from "#core/ports.ts";
import type {
  CommandInfo,
  CommandSpec,
  FileInfo,
  LayerDigest,
  Lifetime,
  SandboxInfo,
  SandboxSpec,
  SessionInfo,
  SessionSpec,
  TerminalSize,
} from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";
import type { Log } from "../log.ts";
import { forkInto } from "./fork-into.ts";
import { NoComputers } from "./no-computers.ts";
import { readyInfo } from "./ready-info.ts";

/** A log that says nothing. */
export const SILENT: Log = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** A program of the test node: its output is known at once; `end` undefined: it runs on. */
export interface Program {
  readonly stdout: Uint8Array;
  readonly code: number | undefined;
}

/** A node in memory for tests of the control plane: keeps what it is given, runs nothing, and can be told to misbehave. */
export class TestNode extends NoComputers implements Node {
  readonly edge: EdgeId;
  readonly sandboxes = new Map<SandboxId, SandboxInfo>();
  readonly commands = new Map<CommandId, { readonly spec: CommandSpec; readonly info: CommandInfo }>();
  /** Sandboxes that fit one message. */
  listedAtOnce = 100;
  /** The cursor that a list of commands comes with. */
  nextPage: string | undefined;
  /** What readTree and watchFiles give, and where writeTree puts it. */
  tree: Uint8Array[] = [];
  readonly files = new Map<string, Uint8Array>();
  /** Every call's name, in order. */
  readonly calls: string[] = [];
  /** The signals of calls, by name: tests look whether a call was given up. */
  readonly signals = new Map<string, AbortSignal>();
  /** Asked before every call; may throw, or make it wait. */
  before: (call: string, signal: AbortSignal) => Promise<void> | void = () => undefined;
  program: Program = { stdout: new Uint8Array(), code: 0 };
  chunks: (read: OutputRead, signal: AbortSignal) => AsyncIterable<OutputChunk> = async function* () {};
  content: (read: FileRead, signal: AbortSignal) => AsyncIterable<Uint8Array>;
  samples: (read: UsageRead) => AsyncIterable<SandboxUsage> = async function* () {};
  port: (port: number, incoming: AsyncIterable<Uint8Array>, signal: AbortSignal) => AsyncIterable<PortPiece> = (n) => {
    throw new SandboxError("PortFailed", `nothing listens at port ${n}`);
  };
  entries: readonly FileInfo[] = [];
  size = { cpus: 64, memoryMiB: 65_536, sandboxes: 1000 };
  stdin = Buffer.alloc(0);
  readonly resized: TerminalSize[] = [];
  snapshot: NonNullable<Forked["snapshot"]> = { layers: [`sha256:${"e".repeat(64)}` as LayerDigest] };
  readonly sessions = new Map<string, { readonly spec: SessionSpec; readonly info: SessionInfo }>();

  constructor(edge: string) {
    super();
    this.edge = parseEdgeId(edge);
    this.content = async function* (this: TestNode, read: FileRead) {
      const bytes = this.files.get(Buffer.from(read.path).toString("latin1"));
      if (bytes === undefined) throw new SandboxError("NotFound", "no such file");
      yield bytes.subarray(read.offset, read.length === undefined ? undefined : read.offset + read.length);
    }.bind(this);
  }

  async info(signal: AbortSignal): Promise<NodeInfo> {
    await this.#enter("info", signal);
    const all = [...this.sandboxes.values()];
    const sum = (of: (info: SandboxInfo) => number) => all.reduce((total, info) => total + of(info), 0);
    return {
      edge: this.edge,
      version: "test",
      startedAtMs: 1,
      backends: ["container"],
      capacity: this.size,
      promised: {
        cpus: sum(({ spec }) => spec.resources.cpus),
        memoryMiB: sum(({ spec }) => spec.resources.memoryMiB),
        sandboxes: all.length,
      },
      sandboxes: all.length,
      creating: 0,
    };
  }

  async invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult> {
    await this.#enter("invoke", signal);
    const run = { exitCode: 0, signal: undefined, stdout: call.stdin, stderr: new Uint8Array(), outputCut: false };
    const times = { wallMs: 1, cpuMs: 1, peakMemoryBytes: 1 };
    const result = { status: "ok", message: undefined, compile: undefined, run: { ...run, ...times } } as const;
    return { ...result, files: [], tests: [], [Symbol.dispose]: () => undefined };
  }

  async startInvocation(_call: FunctionCall, signal: AbortSignal): Promise<InvocationId> {
    await this.#enter("startInvocation", signal);
    return newInvocationId(this.edge);
  }

  async waitInvocation(_id: InvocationId, _wait: InvocationWait, signal: AbortSignal): Promise<undefined> {
    await this.#enter("waitInvocation", signal);
  }

  async dropInvocation(_id: InvocationId, _project: string, signal: AbortSignal): Promise<void> {
    await this.#enter("dropInvocation", signal);
  }

  async create(spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo> {
    await this.#enter("create", signal);
    const known = this.sandboxes.get(spec.id);
    if (known !== undefined) return known;
    const info = readyInfo(spec);
    this.sandboxes.set(spec.id, info);
    return info;
  }

  async inspect(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    await this.#enter("inspect", signal);
    return this.#sandbox(id);
  }

  async list(filter: SandboxFilter, signal: AbortSignal): Promise<readonly SandboxInfo[]> {
    await this.#enter("list", signal);
    return [...this.sandboxes.values()]
      .filter(
        ({ spec }) =>
          (filter.after === undefined || spec.id > filter.after) &&
          (filter.project === undefined || spec.project === filter.project) &&
          Object.entries(filter.labels ?? {}).every(([name, value]) => spec.labels[name] === value),
      )
      .sort((a, b) => (a.spec.id < b.spec.id ? -1 : 1))
      .slice(0, Math.min(this.listedAtOnce, filter.limit ?? this.listedAtOnce));
  }

  async extend(id: SandboxId, lifetime: Lifetime, signal: AbortSignal): Promise<SandboxInfo> {
    await this.#enter("extend", signal);
    const known = this.#sandbox(id);
    const info = { ...known, spec: { ...known.spec, lifetime } };
    this.sandboxes.set(id, info);
    return info;
  }

  async pause(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    await this.#enter("pause", signal);
    return { ...this.#sandbox(id), state: "paused" };
  }

  async resume(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    await this.#enter("resume", signal);
    return { ...this.#sandbox(id), state: "ready" };
  }

  async destroy(id: SandboxId, signal: AbortSignal): Promise<void> {
    await this.#enter("destroy", signal);
    this.sandboxes.delete(id);
  }

  async *usage(id: SandboxId, read: UsageRead, signal: AbortSignal): AsyncGenerator<SandboxUsage> {
    await this.#enter(`usage ${read.periodMs}`, signal);
    this.#sandbox(id);
    yield* this.samples(read);
  }

  async startCommand(id: SandboxId, spec: CommandSpec, wait: RunWait, signal: AbortSignal): Promise<CommandResult> {
    await this.#enter("startCommand", signal);
    this.#sandbox(id);
    const { stdout, code } = this.program;
    const ended = code !== undefined;
    const info: CommandInfo = {
      id: newCommandId(),
      argv: spec.argv,
      pid: 7,
      terminal: spec.terminal,
      waitFor: spec.waitFor,
      session: spec.session?.name,
      startedAtMs: 3,
      status: ended ? { cause: "exited", code, signal: undefined, wallMs: 1, cpuMs: 1, maxRssKiB: 100 } : undefined,
      stdout: { seen: stdout.length, kept: stdout.length, truncated: false, ended },
      stderr: { seen: 0, kept: 0, truncated: false, ended },
    };
    this.commands.set(info.id, { spec, info });
    if (!ended || wait.waitMs === 0) return { command: info, output: undefined };
    return { command: info, output: { stdout: stdout.subarray(0, wait.inlineBytes), stderr: new Uint8Array() } };
  }

  async *takeInput(
    id: SandboxId,
    _command: CommandId,
    _writer: string,
    signal: AbortSignal,
  ): AsyncGenerator<InputEvent, void, undefined> {
    await this.#enter("takeInput", signal);
    this.#sandbox(id);
    yield { type: "taken", offset: this.stdin.length };
  }

  async resizeTerminal(id: SandboxId, _command: CommandId, size: TerminalSize, signal: AbortSignal): Promise<void> {
    await this.#enter("resizeTerminal", signal);
    this.#sandbox(id);
    this.resized.push(size);
  }

  async openSession(id: SandboxId, spec: SessionSpec, signal: AbortSignal): Promise<SessionInfo> {
    await this.#enter("openSession", signal);
    this.#sandbox(id);
    const info = { id: newCommandId(), name: spec.name ?? "made-up", pid: 8, startedAtMs: 4, status: undefined };
    this.sessions.set(info.name, { spec, info });
    return info;
  }

  async listSessions(id: SandboxId, signal: AbortSignal): Promise<readonly SessionInfo[]> {
    await this.#enter("listSessions", signal);
    this.#sandbox(id);
    return [...this.sessions.values()].map(({ info }) => info);
  }

  async inspectSession(id: SandboxId, name: string, signal: AbortSignal): Promise<SessionInfo> {
    await this.#enter("inspectSession", signal);
    this.#sandbox(id);
    const found = this.sessions.get(name);
    if (found === undefined) throw new SandboxError("NotFound", `no session ${name}`);
    return found.info;
  }

  async removeSession(id: SandboxId, name: string, signal: AbortSignal): Promise<void> {
    await this.#enter("removeSession", signal);
    this.#sandbox(id);
    this.sessions.delete(name);
  }

  async listCommands(id: SandboxId, page: CommandPageRequest, signal: AbortSignal): Promise<CommandPage> {
    await this.#enter(`listCommands ${page.limit} ${page.cursor} ${page.newestFirst}`, signal);
    this.#sandbox(id);
    return { commands: [...this.commands.values()].map(({ info }) => info), cursor: this.nextPage };
  }

  async waitCommand(id: SandboxId, command: CommandId, _waitMs: number, signal: AbortSignal): Promise<CommandInfo> {
    await this.#enter("waitCommand", signal);
    this.#sandbox(id);
    const known = this.commands.get(command);
    if (known === undefined) throw new SandboxError("NotFound", `no command ${command}`);
    return known.info;
  }

  async signalCommand(_id: SandboxId, _command: CommandId, signalName: string, signal: AbortSignal): Promise<void> {
    await this.#enter(`signalCommand ${signalName}`, signal);
  }

  async writeStdin(_id: SandboxId, _command: CommandId, input: StdinWrite, signal: AbortSignal) {
    await this.#enter(`writeStdin ${input.offset} ${input.close}`, signal);
    for await (const chunk of input.bytes) this.stdin = Buffer.concat([this.stdin, chunk]);
    return { offset: input.offset + this.stdin.length };
  }

  async *readOutput(_id: SandboxId, _command: CommandId, read: OutputRead, signal: AbortSignal) {
    await this.#enter("readOutput", signal);
    yield* this.chunks(read, signal);
  }

  async *readFile(_id: SandboxId, read: FileRead, signal: AbortSignal): AsyncGenerator<Uint8Array | FileDigest> {
    await this.#enter("readFile", signal);
    const hash = createHash("sha256");
    let size = 0;
    for await (const bytes of this.content(read, signal)) {
      hash.update(bytes);
      size += bytes.length;
      yield bytes;
    }
    yield { size, sha256: hash.digest("hex") };
  }

  async writeFile(_id: SandboxId, write: FileWrite, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal) {
    await this.#enter(`writeFile ${write.mode.toString(8)} ${write.parents} ${write.user}`, signal);
    const hash = createHash("sha256");
    let size = 0;
    for await (const chunk of bytes) {
      hash.update(chunk);
      size += chunk.length;
      if (size <= 1024 * 1024) this.files.set(Buffer.from(write.path).toString("latin1"), chunk);
    }
    return { size, sha256: hash.digest("hex") } satisfies FileDigest;
  }

  async *listFiles(_id: SandboxId, _list: unknown, signal: AbortSignal): AsyncGenerator<readonly FileInfo[]> {
    await this.#enter("listFiles", signal);
    yield this.entries;
  }

  async stat(_id: SandboxId, _target: unknown, signal: AbortSignal): Promise<FileInfo> {
    await this.#enter("stat", signal);
    const [entry] = this.entries;
    if (entry === undefined) throw new SandboxError("NotFound", "no such file");
    return entry;
  }

  async *readTree(_id: SandboxId, _target: unknown, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    await this.#enter("readTree", signal);
    yield* this.tree;
  }

  async writeTree(_id: SandboxId, write: TreeWrite, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal) {
    await this.#enter(`writeTree ${write.owners}`, signal);
    for await (const chunk of bytes) this.tree.push(new Uint8Array(chunk));
  }

  async *watchFiles(_id: SandboxId, watch: FileWatch, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    await this.#enter(`watchFiles ${watch.recursive}`, signal);
    yield* this.tree;
  }

  async changeFile(_id: SandboxId, { type, path, user, ...rest }: FileChange, signal: AbortSignal): Promise<void> {
    const values = Object.values(rest).map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value));
    await this.#enter(`changeFile ${type} ${values.join(" ")}`, signal);
  }

  async *openPort(_id: SandboxId, port: number, incoming: AsyncIterable<Uint8Array>, signal: AbortSignal) {
    await this.#enter(`openPort ${port}`, signal);
    yield* this.port(port, incoming, signal);
  }

  async waitForPort(_id: SandboxId, port: number, waitMs: number, signal: AbortSignal) {
    await this.#enter(`waitForPort ${port} ${waitMs}`, signal);
    return port === 80;
  }

  async listListeners(_id: SandboxId, signal: AbortSignal) {
    await this.#enter("listListeners", signal);
    return [{ port: 80, address: "127.0.0.1" }];
  }

  async packDiff(id: SandboxId, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    await this.#enter(`packDiff ${options.exclude.join(",")} ${options.keep.join(",")} ${options.consistent}`, signal);
    const { layers, config } = this.#sandbox(id).spec;
    const layer = `sha256:${"d".repeat(64)}` as LayerDigest;
    const skipped = { excluded: 1, scrubbed: 2, special: 3 };
    return { layers: [...layers, layer], config, sizeBytes: 10, layer, entries: 4, dataBytes: 5, frozenMs: 6, skipped };
  }

  async fork(
    id: SandboxId,
    children: readonly ForkChild[],
    { snapshot }: ForkHow,
    signal: AbortSignal,
  ): Promise<Forked> {
    await this.#enter(`fork ${children.length} ${snapshot}`, signal);
    const outcomes = forkInto(this.sandboxes, this.#sandbox(id), children);
    return { frozenMs: 7, outcomes, ...(snapshot === "never" ? {} : { snapshot: this.snapshot }) };
  }

  async resources(signal: AbortSignal) {
    await this.#enter("resources", signal);
    return [{ class: "cgroups" as const, expected: 1, found: 2, surplus: ["x"] }];
  }

  async #enter(call: string, signal: AbortSignal): Promise<void> {
    this.calls.push(call);
    this.signals.set(call.split(" ")[0] ?? call, signal);
    await this.before(call.split(" ")[0] ?? call, signal);
    signal.throwIfAborted();
  }

  #sandbox(id: SandboxId): SandboxInfo {
    const info = this.sandboxes.get(id);
    if (info === undefined) throw new SandboxError("NotFound", `no sandbox ${id}`);
    return info;
  }
}
