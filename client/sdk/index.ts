export type {
  ArtifactView,
  BuildRequest,
  CommandView,
  ComputerView,
  CreateSandbox,
  ErrorDetails,
  ErrorKind,
  ExportToRequest,
  FileView,
  FileWrittenView,
  FunctionReply,
  FunctionRunView,
  FunctionTestView,
  ImportFromRequest,
  InputRequest,
  InvokeFunction,
  LayerView,
  ListenerView,
  NodeView,
  OutputStream,
  PackView,
  ResourceCountView,
  Retry,
  RuntimeView,
  SandboxPatch,
  SandboxView,
  SessionView,
  StoreView,
  TerminalSize,
  UsageView,
  WatchView,
  WhoAmI,
} from "#api/index.ts";
export {
  Artifacts,
  type BuildOptions,
  type ExportOptions,
  type ImportOptions,
  type ListArtifactsOptions,
  type TreeKind,
  type VmImageOptions,
} from "./artifacts.ts";
export { type Attached, Attachment, type AttachOptions } from "./attachment.ts";
export type { CallOptions, TimeLimit } from "./caller.ts";
export { Client, type ClientOptions, Nodes } from "./client.ts";
export { Command } from "./command.ts";
export { type ClickOptions, Computer, type ScreenPoint, type ScreenshotOptions } from "./computer.ts";
export type { Connection } from "./connection.ts";
export type { EndedCommand } from "./ended.ts";
export {
  CommandStartError,
  DsecError,
  type DsecErrorOptions,
  NoRoomError,
  NotFoundError,
  OutputLostError,
  SandboxLostError,
  TransportError,
} from "./errors.ts";
export {
  type FileOptions,
  Files,
  type ListFilesOptions,
  type MoveOptions,
  type ReadOptions,
  type SandboxPath,
  type WriteOptions,
  type WriteTreeOptions,
} from "./files.ts";
export type { FilmOptions } from "./frames.ts";
export { Functions, type Invoked, type InvokeManyOptions, type PrepareOptions } from "./functions.ts";
export type {
  Created,
  CreateManyOptions,
  ManyOptions,
  Ran,
  Removed,
  RunManyOptions,
} from "./many.ts";
export { NodeTransport, type NodeTransportOptions } from "./node-transport.ts";
export type { OutputChunk, OutputOptions } from "./output.ts";
export type { ForkOptions, Forks, PackOptions } from "./packing.ts";
export type { Away } from "./patience.ts";
export { Ports } from "./ports.ts";
export { Result } from "./result.ts";
export { type CommandLine, type RunOptions, Sandbox, type StartOptions, type TerminalOptions } from "./sandbox.ts";
export { type CreateOptions, type ListOptions, Sandboxes } from "./sandboxes.ts";
export type { Screenshot } from "./screenshot.ts";
export { type LineOptions, type RunLineOptions, Session, type SessionOptions } from "./session.ts";
export type { Transport, TransportReply, TransportRequest } from "./transport.ts";
export type { UsageOptions } from "./usage.ts";
export type { WatchOptions } from "./watch.ts";
