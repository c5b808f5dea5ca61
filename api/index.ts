export {
  ArtifactList,
  ArtifactName,
  ArtifactView,
  BuildEvent,
  BuildRequest,
  CollectReply,
  DeriveRequest,
  ImportQuery,
  TagRequest,
} from "./artifacts.ts";
export { AttachEvent, AttachQuery, AttachRequest, INPUT_WINDOW_BYTES } from "./attach.ts";
export {
  CreateManyEvent,
  CreateManyRequest,
  RemoveManyEvent,
  RemoveManyQuery,
  RunManyEvent,
  RunManyRequest,
} from "./batches.ts";
export {
  CommandList,
  CommandListQuery,
  CommandQuery,
  CommandReply,
  CommandView,
  MAX_INLINE_BYTES,
  MAX_WAIT_MS,
  type OutputEnd,
  OutputEvent,
  OutputQuery,
  type OutputStream,
  SignalCommand,
  StartCommand,
  StartQuery,
  StdinQuery,
  StdinReply,
  TerminalSize,
} from "./commands.ts";
export { ComputerView, InputRequest, PowerRequest } from "./computers.ts";
export { ErrorBody, type ErrorDetails, type ErrorKind, type Retry } from "./errors.ts";
export {
  FileLinkQuery,
  FileListQuery,
  FileModeQuery,
  FileMoveQuery,
  FileOwnerQuery,
  FileQuery,
  FileReadQuery,
  FileRemoveQuery,
  FileView,
  FileWriteQuery,
  FileWrittenView,
  TreeWriteQuery,
  TreeWrittenView,
  WatchLine,
  WatchQuery,
  WatchView,
} from "./files.ts";
export {
  CallView,
  FunctionReply,
  type FunctionRunView,
  FunctionTest,
  type FunctionTestView,
  InvokeFunction,
  InvokeManyEvent,
  InvokeManyRequest,
  PrepareEvent,
  RuntimeList,
  RuntimeView,
  StartedCall,
} from "./functions.ts";
export { Health, WhoAmI } from "./identity.ts";
export { LayerList, LayerView } from "./layers.ts";
export {
  NodeList,
  NodeView,
  ResourceCountView,
  ResourceList,
  StoreCollectReply,
  StoreReply,
  StoreView,
} from "./nodes.ts";
export type { Operation } from "./operation.ts";
export { type BodyOf, OPERATIONS, type OperationName, type QueryOf } from "./operations.ts";
export { ForkRequest, ForkView, PackRequest, PackView } from "./packing.ts";
export { ListenerList, ListenerView, PortTicket, PortTicketRequest, PortWaitQuery, PortWaitReply } from "./ports.ts";
export { CreateSandbox, SandboxList, SandboxPatch, SandboxQuery, SandboxView } from "./sandboxes.ts";
export { OpenSession, RunLine, SessionList, SessionView } from "./sessions.ts";
export { ExportEvent, ExportQuery, ExportToRequest, ImportFromRequest } from "./sources.ts";
export { UsageEvent, UsageQuery, UsageView } from "./usage.ts";
export { Environment, Labels, MAX_DURATION_MS, TextOrBytes } from "./values.ts";
