import type { ResourceClass } from "#core/backend.ts";
import type { NodeComputers } from "#core/computers.ts";
import type { NodeFiles } from "#core/files.ts";
import type { FunctionCall, FunctionLoad, HeldResult } from "#core/functions.ts";
import type { CommandId, EdgeId, InvocationId, SandboxId } from "#core/ids.ts";
import type { ForkChild, Forked, ForkHow, PackedDiff, PackOptions } from "#core/packing.ts";
import type { NodePorts } from "#core/ports.ts";
import type {
  BackendKind,
  CommandInfo,
  CommandSpec,
  Lifetime,
  OutputStream,
  SandboxInfo,
  SandboxSpec,
  SessionInfo,
  SessionSpec,
  TerminalSize,
} from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";

/**
 * The node API: what a control plane may ask of an edge. The edge implements it, `edge/server.ts` serves it over a framed
 * connection, `control/nodes/` is its client; one suite holds for all three.
 *
 * Every call takes a signal; a deadline travels with it. Calls reject with `SandboxError`s. Streams are async iterables
 * with back-pressure from end to end. What concerns one sandbox is done in the order in which it arrived.
 */
export interface Node extends NodeFiles, NodePorts, NodeComputers {
  info(signal: AbortSignal): Promise<NodeInfo>;
  /** Resolves when ready. Idempotent on `spec.id`. `NodeFull` when the node cannot take it: nothing is left then. */
  create(spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo>;
  inspect(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo>;
  /**
   * Those that match, in the order of their ids, as many as a message holds: ask again after the last one until the answer is
   * empty.
   */
  list(filter: SandboxFilter, signal: AbortSignal): Promise<readonly SandboxInfo[]>;
  /** Moves the time limits of a live sandbox. */
  extend(id: SandboxId, lifetime: Lifetime, signal: AbortSignal): Promise<SandboxInfo>;
  /**
   * Saves the sandbox as it is at this moment and gives its compute back; success when it is paused already. Whatever is asked of what is in it resumes it
   * first. Rejects with `FailedPrecondition` where its backend cannot, and with `NodeFull` resumes that find no room.
   */
  pause(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo>;
  resume(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo>;
  /** Resolves when nothing of it is left. Succeeds in every state, for unknown ids too. */
  destroy(id: SandboxId, signal: AbortSignal): Promise<void>;
  /** What a ready sandbox uses: once, or again and again until it is removed. */
  usage(id: SandboxId, read: UsageRead, signal: AbortSignal): AsyncIterable<SandboxUsage>;

  /** Starts a command; waits up to `waitMs` for its end and then returns with its first output, to save short commands a call. */
  startCommand(id: SandboxId, spec: CommandSpec, wait: RunWait, signal: AbortSignal): Promise<CommandResult>;
  /**
   * Opens a persistent shell. Rejects with `AlreadyExists` while one of that name lives. A line of it is a command with
   * `session`: lines run one after the other, in the order in which they were started.
   */
  openSession(id: SandboxId, spec: SessionSpec, signal: AbortSignal): Promise<SessionInfo>;
  listSessions(id: SandboxId, signal: AbortSignal): Promise<readonly SessionInfo[]>;
  inspectSession(id: SandboxId, name: string, signal: AbortSignal): Promise<SessionInfo>;
  /** Ends it and resolves when nothing of what it started runs. Success when there is none. */
  removeSession(id: SandboxId, name: string, signal: AbortSignal): Promise<void>;
  /** A page of what was started in it, without the shells of sessions; at most a megabyte and a half of command lines, however many were asked for. */
  listCommands(id: SandboxId, page: CommandPageRequest, signal: AbortSignal): Promise<CommandPage>;
  /** The command, at the end that it waits for or after `waitMs`, whichever is first. */
  waitCommand(id: SandboxId, command: CommandId, waitMs: number, signal: AbortSignal): Promise<CommandInfo>;
  /** To the leader's process group. Success, and no effect, when it has ended. */
  signalCommand(id: SandboxId, command: CommandId, signalName: string, signal: AbortSignal): Promise<void>;
  /** Feeds stdin from `offset` on; bytes already taken are skipped. `close` ends the stream after the last byte. */
  writeStdin(
    id: SandboxId,
    command: CommandId,
    input: StdinWrite,
    signal: AbortSignal,
  ): Promise<{ readonly offset: number }>;
  /**
   * Makes `writer` the only one who may write to the input, until the iteration is given up or another writer takes it: who
   * held it is told. Ends with the command.
   */
  takeInput(id: SandboxId, command: CommandId, writer: string, signal: AbortSignal): AsyncIterable<InputEvent>;
  /** Of a command on a terminal; no effect when it has ended. */
  resizeTerminal(id: SandboxId, command: CommandId, size: TerminalSize, signal: AbortSignal): Promise<void>;
  /**
   * Chunks from `offset` on; with `follow` until the stream ends. A gap before a chunk shows in its offset. The bytes of a chunk
   * are the reader's until it asks for the next.
   */
  readOutput(id: SandboxId, command: CommandId, read: OutputRead, signal: AbortSignal): AsyncIterable<OutputChunk>;

  /** Makes a layer of what a sandbox has written, over its own; it need not be ready, its files must be there. */
  packDiff(id: SandboxId, options: PackOptions, signal: AbortSignal): Promise<PackedDiff>;
  /**
   * Makes sandboxes that begin with what this one has written at one instant, and resolves when each is ready or has failed: one that
   * fails concerns no other. Processes do not come along. Children whose ids exist already, as children of this one, are joined.
   * There may be none of them where a snapshot is made for others in any case; what comes of that concerns no child.
   */
  fork(id: SandboxId, children: readonly ForkChild[], how: ForkHow, signal: AbortSignal): Promise<Forked>;

  /**
   * Carries out one call of a function, and resolves with what became of it, whatever its code does. `Overloaded` when too many wait here,
   * `FailedPrecondition` when the node runs none.
   */
  invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult>;

  /** Takes a call on, and resolves at once. Its result waits here for ten minutes, or until it is dropped. */
  startInvocation(call: FunctionCall, signal: AbortSignal): Promise<InvocationId>;
  /** The result, or undefined after `waitMs` without one. Rejects as `invoke` does, and with `NotFound` for what the project has not started. */
  waitInvocation(id: InvocationId, wait: InvocationWait, signal: AbortSignal): Promise<HeldResult | undefined>;
  /** Gives a call up, or its result. Success when there is none. */
  dropInvocation(id: InvocationId, project: string, signal: AbortSignal): Promise<void>;

  /** What exists against what should, by class. */
  resources(signal: AbortSignal): Promise<readonly ResourceCount[]>;
}

/** Who waits for a call, and how long. */
export interface InvocationWait {
  readonly project: string;
  readonly waitMs: number;
}

/** What a node tells about itself: what placement ranks it by. */
export interface NodeInfo {
  readonly edge: EdgeId;
  readonly version: string;
  readonly startedAtMs: number;
  readonly backends: readonly BackendKind[];
  readonly capacity: NodeAmounts;
  /** Promised to live sandboxes. */
  readonly promised: NodeAmounts;
  readonly sandboxes: number;
  /** Creations under way. */
  readonly creating: number;
  /** Undefined: the node runs no functions. */
  readonly functions?: FunctionLoad | undefined;
}

/** What a node can promise, or has promised, to sandboxes. */
export interface NodeAmounts {
  readonly cpus: number;
  readonly memoryMiB: number;
  readonly sandboxes: number;
}

/** Which sandboxes to list: those that match everything given. */
export interface SandboxFilter {
  readonly project?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Only those whose ids come after this one. */
  readonly after?: SandboxId;
  /** At most so many. */
  readonly limit?: number;
}

/** How often to sample; `undefined`: once. Sampling counts as no use of the sandbox: it may become idle meanwhile. */
export interface UsageRead {
  readonly periodMs: number | undefined;
}

/** How long the start of a command may wait for its end, and what may come back with it. */
export interface RunWait {
  readonly waitMs: number;
  /** Most bytes of each stream to return with the answer. */
  readonly inlineBytes: number;
}

/** Which commands to list: the next `limit` behind `cursor`, in the order of their starts or the other way round. */
export interface CommandPageRequest {
  readonly limit: number;
  /** From the page before. */
  readonly cursor: string | undefined;
  readonly newestFirst: boolean;
}

/** Some commands; `cursor` is there when more follow. */
export interface CommandPage {
  readonly commands: readonly CommandInfo[];
  readonly cursor: string | undefined;
}

/** A command just started, and its output when it ended in time. */
export interface CommandResult {
  readonly command: CommandInfo;
  /** The first `inlineBytes` of each stream, present when the command ended within `waitMs`. */
  readonly output: Readonly<Record<OutputStream, Uint8Array>> | undefined;
}

/** A piece of a command's input. */
export interface StdinWrite {
  readonly offset: number;
  readonly bytes: AsyncIterable<Uint8Array>;
  readonly close: boolean;
  /** As which writer the input was taken; undefined: by nobody. */
  readonly writer?: string | undefined;
}

/** What becomes of an input that was taken: first where it goes on, perhaps later that another writer has it. */
export type InputEvent = { readonly type: "taken"; readonly offset: number } | { readonly type: "displaced" };

/** Which part of a command's output to read, and how. */
export interface OutputRead {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly follow: boolean;
  /** The command may not run ahead of this reader by more than the cap: nothing is dropped while it reads. */
  readonly hold: boolean;
}

/** Consecutive bytes of a stream, at most 124 KiB; `offset` is that of the first. */
export interface OutputChunk {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/** One class of resource: what the journal expects against what the node has. */
export interface ResourceCount {
  readonly class: ResourceClass;
  readonly expected: number;
  readonly found: number;
  /** Ids that exist and should not, at most 20. */
  readonly surplus: readonly string[];
}
