import type { CommandId, SandboxId } from "#core/ids.ts";
import type { Listener } from "#core/listeners.ts";
import type {
  CommandPage,
  CommandPageRequest,
  CommandResult,
  InputEvent,
  Node,
  OutputChunk,
  OutputRead,
  RunWait,
  StdinWrite,
} from "#core/node.ts";
import type { PortPiece } from "#core/ports.ts";
import type { CommandInfo, CommandSpec, SessionInfo, SessionSpec, TerminalSize } from "#core/sandbox.ts";
import {
  feedCommand,
  readOutput,
  resizeTerminal,
  signalCommand,
  startCommand,
  takeCommandInput,
  waitCommand,
} from "#edge/commands/calls.ts";
import { inspectSession, listSessions, openSession, removeSession } from "#edge/commands/sessions.ts";
import { FileCalls } from "#edge/files/calls.ts";
import { listListeners, openPort, waitForPort } from "#edge/ports.ts";

/** The calls of the node API that an edge answers itself. */
type OwnCalls =
  | "info"
  | "create"
  | "inspect"
  | "list"
  | "extend"
  | "pause"
  | "resume"
  | "destroy"
  | "usage"
  | "packDiff"
  | "fork"
  | "invoke"
  | "startInvocation"
  | "waitInvocation"
  | "dropInvocation"
  | "resources";

/** The part of an edge that answers calls about what is inside a sandbox: commands, sessions, ports and files. */
export abstract class GuestCalls extends FileCalls implements Omit<Node, OwnCalls> {
  async startCommand(id: SandboxId, spec: CommandSpec, wait: RunWait, signal: AbortSignal): Promise<CommandResult> {
    return startCommand(this.calling(id, signal), spec, wait);
  }

  async openSession(id: SandboxId, spec: SessionSpec, signal: AbortSignal): Promise<SessionInfo> {
    return openSession(this.calling(id, signal), spec);
  }

  async listSessions(id: SandboxId, signal: AbortSignal): Promise<readonly SessionInfo[]> {
    return listSessions(this.calling(id, signal));
  }

  async inspectSession(id: SandboxId, name: string, signal: AbortSignal): Promise<SessionInfo> {
    return inspectSession(this.calling(id, signal), name);
  }

  async removeSession(id: SandboxId, name: string, signal: AbortSignal): Promise<void> {
    return removeSession(this.calling(id, signal), name);
  }

  async listCommands(id: SandboxId, page: CommandPageRequest, signal: AbortSignal): Promise<CommandPage> {
    return this.calling(id, signal).driver.commands.page(page);
  }

  async waitCommand(id: SandboxId, command: CommandId, waitMs: number, signal: AbortSignal): Promise<CommandInfo> {
    return waitCommand(this.calling(id, signal), command, waitMs);
  }

  async signalCommand(id: SandboxId, command: CommandId, signalName: string, signal: AbortSignal): Promise<void> {
    await signalCommand(this.calling(id, signal), command, signalName);
  }

  async writeStdin(
    id: SandboxId,
    command: CommandId,
    input: StdinWrite,
    signal: AbortSignal,
  ): Promise<{ readonly offset: number }> {
    return feedCommand(this.calling(id, signal), command, input);
  }

  async *takeInput(
    id: SandboxId,
    command: CommandId,
    writer: string,
    signal: AbortSignal,
  ): AsyncGenerator<InputEvent, void, undefined> {
    yield* takeCommandInput(this.calling(id, signal), command, writer);
  }

  async resizeTerminal(id: SandboxId, command: CommandId, size: TerminalSize, signal: AbortSignal): Promise<void> {
    await resizeTerminal(this.calling(id, signal), command, size);
  }

  readOutput(id: SandboxId, command: CommandId, read: OutputRead, signal: AbortSignal): AsyncIterable<OutputChunk> {
    return readOutput(() => this.calling(id, signal), command, read, signal);
  }

  async *openPort(
    id: SandboxId,
    port: number,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncGenerator<PortPiece, void, undefined> {
    yield* openPort(this.calling(id, signal), port, incoming);
  }

  async waitForPort(id: SandboxId, port: number, waitMs: number, signal: AbortSignal): Promise<boolean> {
    return waitForPort(this.calling(id, signal), port, waitMs);
  }

  async listListeners(id: SandboxId, signal: AbortSignal): Promise<readonly Listener[]> {
    return listListeners(this.calling(id, signal));
  }
}
