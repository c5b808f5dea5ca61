import { ByteBudget, type ByteHold } from "#core/bytes/byte-budget.ts";
import type {
  ComputerChannel,
  ComputerStatus,
  InputAction,
  PowerAction,
  Screenshot,
  ScreenshotOptions,
} from "#core/computers.ts";
import { separate } from "#core/concurrency/bulk.ts";
import type {
  FileChange,
  FileDigest,
  FileList,
  FileRead,
  FileTarget,
  FileWatch,
  FileWrite,
  TreeWrite,
} from "#core/files.ts";
import { type FunctionCall, type FunctionResult, type HeldResult, resultLimits } from "#core/functions.ts";
import type { CommandId, InvocationId, SandboxId } from "#core/ids.ts";
import type { Listener } from "#core/listeners.ts";
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
  ResourceCount,
  RunWait,
  SandboxFilter,
  StdinWrite,
  UsageRead,
} from "#core/node.ts";
import {
  decodeBulk,
  decodeBytes,
  decodeChunks,
  decodeEntries,
  decodeFile,
  decodeInfo,
  decodePort,
  decodeResult,
  decodeValue,
  encodeBytes,
  encodeValue,
  type NodeMethod,
  type StdinArguments,
} from "#core/node-wire.ts";
import type { ForkChild, Forked, ForkHow, PackedDiff, PackOptions } from "#core/packing.ts";
import type { PortPiece } from "#core/ports.ts";
import type { Payload } from "#core/rpc/frames.ts";
import { type RpcOptions, RpcPeer } from "#core/rpc/peer.ts";
import type { FrameTransport } from "#core/rpc/transport.ts";
import type {
  CommandInfo,
  CommandSpec,
  FileInfo,
  Lifetime,
  SandboxInfo,
  SandboxSpec,
  SessionInfo,
  SessionSpec,
  TerminalSize,
} from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";

/** Results of functions that nobody has taken yet, unless there is a budget for all nodes. */
const RESULT_BYTES = 1024 * 1024 * 1024;

/** How a remote node behaves. */
export interface RemoteNodeOptions extends Omit<RpcOptions, "serve"> {
  /** Of what results of functions hold on this side: the node keeps what there is no room for. */
  readonly results?: ByteBudget;
}

/**
 * A node at the other end of a connection. Indistinguishable from the node itself, but for `Unavailable` when the connection
 * breaks: then a new one is made on a new connection.
 */
export class RemoteNode implements Node, Disposable {
  readonly #peer: RpcPeer;

  readonly #results: ByteBudget;

  constructor(transport: FrameTransport, options: RemoteNodeOptions = {}) {
    this.#peer = new RpcPeer(transport, options);
    this.#results =
      options.results ?? new ByteBudget({ ...resultLimits(RESULT_BYTES), waiting: Number.POSITIVE_INFINITY });
  }

  /** Resolves when the connection is gone. */
  get closed(): Promise<void> {
    return this.#peer.closed;
  }

  [Symbol.dispose](): void {
    this.#peer.close();
  }

  info(signal: AbortSignal): Promise<NodeInfo> {
    return this.#call("info", [], signal);
  }

  create(spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo> {
    return this.#call("create", [spec], signal);
  }

  inspect(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    return this.#call("inspect", [id], signal);
  }

  list(filter: SandboxFilter, signal: AbortSignal): Promise<readonly SandboxInfo[]> {
    return this.#call("list", [filter], signal);
  }

  extend(id: SandboxId, lifetime: Lifetime, signal: AbortSignal): Promise<SandboxInfo> {
    return this.#call("extend", [id, lifetime], signal);
  }

  pause(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    return this.#call("pause", [id], signal);
  }

  resume(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    return this.#call("resume", [id], signal);
  }

  destroy(id: SandboxId, signal: AbortSignal): Promise<void> {
    return this.#call("destroy", [id], signal);
  }

  usage(id: SandboxId, read: UsageRead, signal: AbortSignal): AsyncIterable<SandboxUsage> {
    return this.#values("usage", [id, read], signal);
  }

  async startCommand(id: SandboxId, spec: CommandSpec, wait: RunWait, signal: AbortSignal): Promise<CommandResult> {
    return decodeResult(await this.#peer.call("startCommand", encodeValue([id, spec, wait]), { signal }));
  }

  openSession(id: SandboxId, spec: SessionSpec, signal: AbortSignal): Promise<SessionInfo> {
    return this.#call("openSession", [id, spec], signal);
  }

  listSessions(id: SandboxId, signal: AbortSignal): Promise<readonly SessionInfo[]> {
    return this.#call("listSessions", [id], signal);
  }

  inspectSession(id: SandboxId, name: string, signal: AbortSignal): Promise<SessionInfo> {
    return this.#call("inspectSession", [id, name], signal);
  }

  removeSession(id: SandboxId, name: string, signal: AbortSignal): Promise<void> {
    return this.#call("removeSession", [id, name], signal);
  }

  listCommands(id: SandboxId, page: CommandPageRequest, signal: AbortSignal): Promise<CommandPage> {
    return this.#call("listCommands", [id, page], signal);
  }

  waitCommand(id: SandboxId, command: CommandId, waitMs: number, signal: AbortSignal): Promise<CommandInfo> {
    return this.#call("waitCommand", [id, command, waitMs], signal);
  }

  signalCommand(id: SandboxId, command: CommandId, signalName: string, signal: AbortSignal): Promise<void> {
    return this.#call("signalCommand", [id, command, signalName], signal);
  }

  async writeStdin(
    id: SandboxId,
    command: CommandId,
    input: StdinWrite,
    signal: AbortSignal,
  ): Promise<{ readonly offset: number }> {
    const args: StdinArguments = [id, command, { offset: input.offset, close: input.close, writer: input.writer }];
    return decodeValue(await this.#upload("writeStdin", args, input.bytes, signal));
  }

  takeInput(id: SandboxId, command: CommandId, writer: string, signal: AbortSignal): AsyncIterable<InputEvent> {
    return this.#values("takeInput", [id, command, writer], signal);
  }

  resizeTerminal(id: SandboxId, command: CommandId, size: TerminalSize, signal: AbortSignal): Promise<void> {
    return this.#call("resizeTerminal", [id, command, size], signal);
  }

  readOutput(id: SandboxId, command: CommandId, read: OutputRead, signal: AbortSignal): AsyncIterable<OutputChunk> {
    return decodeChunks(this.#peer.stream("readOutput", encodeValue([id, command, read]), { signal }));
  }

  readFile(id: SandboxId, read: FileRead, signal: AbortSignal): AsyncIterable<Uint8Array | FileDigest> {
    return decodeFile(this.#peer.stream("readFile", encodeValue([id, read]), { signal }));
  }

  async writeFile(
    id: SandboxId,
    write: FileWrite,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<FileDigest> {
    return decodeValue(await this.#upload("writeFile", [id, write], bytes, signal));
  }

  listFiles(id: SandboxId, list: FileList, signal: AbortSignal): AsyncIterable<readonly FileInfo[]> {
    return decodeEntries(this.#peer.stream("listFiles", encodeValue([id, list]), { signal }));
  }

  async stat(id: SandboxId, target: FileTarget, signal: AbortSignal): Promise<FileInfo> {
    return decodeInfo(await this.#peer.call("stat", encodeValue([id, target]), { signal }));
  }

  changeFile(id: SandboxId, change: FileChange, signal: AbortSignal): Promise<void> {
    return this.#call("changeFile", [id, change], signal);
  }

  openPort(
    id: SandboxId,
    port: number,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncIterable<PortPiece> {
    const options = { signal, upload: encodeBytes(incoming) };
    return decodePort(this.#peer.stream("openPort", encodeValue([id, port]), options));
  }

  waitForPort(id: SandboxId, port: number, waitMs: number, signal: AbortSignal): Promise<boolean> {
    return this.#call("waitForPort", [id, port, waitMs], signal);
  }

  listListeners(id: SandboxId, signal: AbortSignal): Promise<readonly Listener[]> {
    return this.#call("listListeners", [id], signal);
  }

  readTree(id: SandboxId, target: FileTarget, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return decodeBytes(this.#peer.stream("readTree", encodeValue([id, target]), { signal }));
  }

  async writeTree(
    id: SandboxId,
    write: TreeWrite,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#upload("writeTree", [id, write], bytes, signal);
  }

  watchFiles(id: SandboxId, watch: FileWatch, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return decodeBytes(this.#peer.stream("watchFiles", encodeValue([id, watch]), { signal }));
  }

  packDiff(id: SandboxId, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    return this.#call("packDiff", [id, options], signal);
  }

  fork(id: SandboxId, children: readonly ForkChild[], how: ForkHow, signal: AbortSignal): Promise<Forked> {
    return this.#call("fork", [id, children, how], signal);
  }

  invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult> {
    const { value, bytes } = separate(call);
    const options = { signal, upload: encodeBytes(inTurn(bytes)) };
    return this.#held(call.project, this.#peer.stream("invoke", encodeValue([value]), options), signal);
  }

  async startInvocation(call: FunctionCall, signal: AbortSignal): Promise<InvocationId> {
    const { value, bytes } = separate(call);
    return decodeValue(await this.#upload("startInvocation", [value], inTurn(bytes), signal));
  }

  async waitInvocation(id: InvocationId, wait: InvocationWait, signal: AbortSignal): Promise<HeldResult | undefined> {
    const items = this.#peer.stream("waitInvocation", encodeValue([id, wait]), { signal });
    const { result, [Symbol.dispose]: dispose } = await this.#held<{ readonly result?: FunctionResult }>(
      wait.project,
      items,
      signal,
    );
    return result && { ...result, [Symbol.dispose]: dispose };
  }

  dropInvocation(id: InvocationId, project: string, signal: AbortSignal): Promise<void> {
    return this.#call("dropInvocation", [id, project], signal);
  }

  computerStatus(id: SandboxId, signal: AbortSignal): Promise<ComputerStatus> {
    return this.#call("computerStatus", [id], signal);
  }

  powerComputer(id: SandboxId, action: PowerAction, signal: AbortSignal): Promise<void> {
    return this.#call("powerComputer", [id, action], signal);
  }

  takeScreenshot(id: SandboxId, options: ScreenshotOptions, signal: AbortSignal): Promise<Screenshot> {
    return decodeBulk(this.#peer.stream("takeScreenshot", encodeValue([id, options]), { signal }));
  }

  sendInput(id: SandboxId, actions: readonly InputAction[], signal: AbortSignal): Promise<void> {
    return this.#call("sendInput", [id, actions], signal);
  }

  openChannel(
    id: SandboxId,
    channel: ComputerChannel,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncIterable<PortPiece> {
    const options = { signal, upload: encodeBytes(incoming) };
    return decodePort(this.#peer.stream("openChannel", encodeValue([id, channel]), options));
  }

  resources(signal: AbortSignal): Promise<readonly ResourceCount[]> {
    return this.#call("resources", [], signal);
  }

  async #call<T>(method: NodeMethod, args: readonly unknown[], signal: AbortSignal): Promise<T> {
    return decodeValue<T>(await this.#peer.call(method, encodeValue(args), { signal }));
  }

  /** A value whose bytes count as held until it is disposed of. What fits one item counts as nothing. */
  async #held<T extends object>(
    project: string,
    items: AsyncIterable<Payload>,
    signal: AbortSignal,
  ): Promise<T & Disposable> {
    let hold: ByteHold | undefined;
    const dispose = () => hold?.[Symbol.dispose]();
    try {
      const value = await decodeBulk<T>(items, async (bytes) => {
        hold = await this.#results.take(project, bytes, signal);
      });
      return { ...value, [Symbol.dispose]: dispose };
    } catch (error) {
      dispose();
      throw error;
    }
  }

  async *#values<T>(
    method: NodeMethod,
    args: readonly unknown[],
    signal: AbortSignal,
  ): AsyncGenerator<T, void, undefined> {
    for await (const item of this.#peer.stream(method, encodeValue(args), { signal })) yield decodeValue<T>(item);
  }

  #upload(
    method: NodeMethod,
    args: readonly unknown[],
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<Payload> {
    return this.#peer.call(method, encodeValue(args), { signal, upload: encodeBytes(bytes) });
  }
}

async function* inTurn(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void, undefined> {
  yield* pieces;
}
