import { type Static, type TSchema, Type } from "typebox";
import { ArtifactList, ArtifactQuery, ArtifactView, BuildEvent, BuildRequest, ImportQuery } from "./artifacts.ts";
import {
  CreateManyEvent,
  CreateManyRequest,
  RemoveManyEvent,
  RemoveManyQuery,
  RunManyEvent,
  RunManyRequest,
} from "./batches.ts";
import { CATALOGUE_OPERATIONS } from "./catalogue-operations.ts";
import { COMMAND_OPERATIONS } from "./command-operations.ts";
import { COMPUTER_OPERATIONS } from "./computers.ts";
import {
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
} from "./files.ts";
import { FUNCTION_OPERATIONS } from "./function-operations.ts";
import { Health, WhoAmI } from "./identity.ts";
import { LayerList } from "./layers.ts";
import { LIFE_OPERATIONS } from "./life-operations.ts";
import { NodeList, ResourceList, StoreReply } from "./nodes.ts";
import { BASE, type Operation } from "./operation.ts";
import { ForkRequest, ForkView, PackRequest, PackView } from "./packing.ts";
import { ListenerList, PortTicket, PortTicketRequest, PortWaitQuery, PortWaitReply } from "./ports.ts";
import { CreateSandbox, SandboxList, SandboxQuery, SandboxView } from "./sandboxes.ts";
import { ExportEvent, ExportQuery, ExportToRequest, ImportFromRequest } from "./sources.ts";
import { UsageEvent, UsageQuery, UsageView } from "./usage.ts";

const SANDBOX = "/v1/sandboxes/{id}";
const FILES = `${SANDBOX}/files` as const;

/** Every call, by name. */
export const OPERATIONS = {
  health: { ...BASE, method: "GET", path: "/healthz", summary: "Is the server up?", reply: Health, open: true },
  openApi: {
    ...BASE,
    method: "GET",
    path: "/openapi.json",
    summary: "This API as OpenAPI 3.1.",
    reply: Type.Unknown(),
  },
  whoAmI: { ...BASE, method: "GET", path: "/v1/whoami", summary: "Who the token belongs to.", reply: WhoAmI },

  createSandbox: {
    ...BASE,
    method: "POST",
    path: "/v1/sandboxes",
    summary: "Make a sandbox; answers when it is ready.",
    body: CreateSandbox,
    status: 201,
    reply: SandboxView,
    idempotencyKey: true,
  },
  listSandboxes: {
    ...BASE,
    method: "GET",
    path: "/v1/sandboxes",
    summary: "The sandboxes of the project, ordered by id.",
    query: SandboxQuery,
    reply: SandboxList,
  },
  inspectSandbox: { ...BASE, method: "GET", path: SANDBOX, summary: "One sandbox.", reply: SandboxView },
  ...LIFE_OPERATIONS,
  packSandbox: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/pack`,
    summary: "Make a snapshot of it: its layers and one more, of what it changed.",
    body: PackRequest,
    status: 201,
    reply: PackView,
    idempotencyKey: true,
  },
  forkSandbox: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/fork`,
    summary:
      "Make sandboxes that begin with what it has written at one instant; answers when each is ready or has failed.",
    body: ForkRequest,
    status: 201,
    reply: ForkView,
    idempotencyKey: true,
  },
  createMany: {
    ...BASE,
    method: "POST",
    path: "/v1/sandboxes/batch",
    summary: "Make many sandboxes; a line for each when it is ready, or why it is not.",
    body: CreateManyRequest,
    reply: { line: CreateManyEvent },
    idempotencyKey: true,
    streams: true,
  },
  removeMany: {
    ...BASE,
    method: "DELETE",
    path: "/v1/sandboxes",
    summary: "Remove the sandboxes with these labels; a line for each when nothing of it is left.",
    query: RemoveManyQuery,
    reply: { line: RemoveManyEvent },
    streams: true,
  },
  runMany: {
    ...BASE,
    method: "POST",
    path: "/v1/commands/batch",
    summary: "Run a command in many sandboxes; a line for each at its end.",
    body: RunManyRequest,
    reply: { line: RunManyEvent },
    idempotencyKey: true,
    streams: true,
  },

  sandboxUsage: { ...BASE, method: "GET", path: `${SANDBOX}/usage`, summary: "What it uses now.", reply: UsageView },
  followUsage: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/usage/stream`,
    summary: "What it uses, again and again until it is removed.",
    query: UsageQuery,
    reply: { line: UsageEvent },
    streams: true,
  },

  ...COMMAND_OPERATIONS,
  ...FUNCTION_OPERATIONS,
  ...COMPUTER_OPERATIONS,

  readFile: {
    ...BASE,
    method: "GET",
    path: FILES,
    summary: "A file's bytes; trailers X-Dsec-Size and X-Dsec-Sha256 say what they were.",
    query: FileReadQuery,
    reply: "bytes",
    streams: true,
  },
  writeFile: {
    ...BASE,
    method: "PUT",
    path: FILES,
    summary: "Replace a file, atomically.",
    query: FileWriteQuery,
    body: "bytes",
    reply: FileWrittenView,
    streams: true,
  },
  removeFile: {
    ...BASE,
    method: "DELETE",
    path: FILES,
    summary: "Remove a file or a directory.",
    query: FileRemoveQuery,
    status: 204,
  },
  listFiles: {
    ...BASE,
    method: "GET",
    path: `${FILES}/list`,
    summary: "The entries of a directory, one a line.",
    query: FileListQuery,
    reply: { line: FileView },
    streams: true,
  },
  statFile: { ...BASE, method: "GET", path: `${FILES}/stat`, summary: "One entry.", query: FileQuery, reply: FileView },
  makeDirectory: {
    ...BASE,
    method: "POST",
    path: `${FILES}/mkdir`,
    summary: "Make a directory.",
    query: FileWriteQuery,
    status: 204,
  },
  changeMode: {
    ...BASE,
    method: "POST",
    path: `${FILES}/chmod`,
    summary: "Give a file or directory other permission bits.",
    query: FileModeQuery,
    status: 204,
  },
  changeOwner: {
    ...BASE,
    method: "POST",
    path: `${FILES}/chown`,
    summary: "Give a file or directory another owner.",
    query: FileOwnerQuery,
    status: 204,
  },
  makeLink: {
    ...BASE,
    method: "POST",
    path: `${FILES}/symlink`,
    summary: "Make a symbolic link.",
    query: FileLinkQuery,
    status: 204,
  },
  readTree: {
    ...BASE,
    method: "GET",
    path: `${FILES}/tree`,
    summary: "A directory and all below it as a tar archive; trailers X-Dsec-Size and X-Dsec-Sha256.",
    query: FileQuery,
    reply: "bytes",
    streams: true,
  },
  writeTree: {
    ...BASE,
    method: "PUT",
    path: `${FILES}/tree`,
    summary: "Unpack a tar archive below a directory.",
    query: TreeWriteQuery,
    body: "bytes",
    reply: TreeWrittenView,
    streams: true,
  },
  watchFiles: {
    ...BASE,
    method: "GET",
    path: `${FILES}/watch`,
    summary: "What happens there, one event a line, until it is gone.",
    query: WatchQuery,
    reply: { line: WatchLine },
    streams: true,
  },
  moveFile: {
    ...BASE,
    method: "POST",
    path: `${FILES}/move`,
    summary: "Give an entry another name, at once.",
    query: FileMoveQuery,
    status: 204,
  },

  listPorts: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/ports`,
    summary: "Who listens for TCP connections; `/ports/{port}/…` itself leads to the server there.",
    reply: ListenerList,
  },
  waitForPort: {
    ...BASE,
    method: "GET",
    path: `${SANDBOX}/ports/wait`,
    summary: "Answers when somebody listens on the port, or after `waitMs`; nobody is connected to.",
    query: PortWaitQuery,
    reply: PortWaitReply,
  },

  createPortTicket: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/ports/tickets`,
    summary: "A ticket with which a browser opens a port on a host of its own, once and within a minute.",
    body: PortTicketRequest,
    status: 201,
    reply: PortTicket,
  },

  importArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/import",
    summary: "Turn an archive into an artifact.",
    query: ImportQuery,
    body: "bytes",
    status: 201,
    reply: ArtifactView,
    streams: true,
  },
  importFrom: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/import-from",
    summary: "Fetch an artifact from a registry or a git repository.",
    body: ImportFromRequest,
    reply: { line: BuildEvent },
    streams: true,
  },
  buildArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/build",
    summary: "Build an artifact from Debian packages.",
    body: BuildRequest,
    reply: { line: BuildEvent },
    streams: true,
  },
  listArtifacts: {
    ...BASE,
    method: "GET",
    path: "/v1/artifacts",
    summary: "The catalogue.",
    query: ArtifactQuery,
    reply: ArtifactList,
  },
  inspectArtifact: {
    ...BASE,
    method: "GET",
    path: "/v1/artifacts/{name}",
    summary: "One artifact; encode `/` and `:` of its name.",
    reply: ArtifactView,
  },
  artifactLayers: {
    ...BASE,
    method: "GET",
    path: "/v1/artifacts/{name}/layers",
    summary: "Where the data of its layers is, and how much of it.",
    reply: LayerList,
  },
  exportArtifact: {
    ...BASE,
    method: "GET",
    path: "/v1/artifacts/{name}/export",
    summary: "The artifact as an OCI image archive; the same artifact gives the same bytes.",
    query: ExportQuery,
    reply: "bytes",
    streams: true,
  },
  exportTo: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/{name}/export-to",
    summary: "Put the artifact into a registry as an OCI image.",
    body: ExportToRequest,
    reply: { line: ExportEvent },
    streams: true,
  },
  ...CATALOGUE_OPERATIONS,
  removeArtifact: {
    ...BASE,
    method: "DELETE",
    path: "/v1/artifacts/{name}",
    summary: "Take it out of the catalogue; sandboxes that use it go on.",
    status: 204,
  },

  listNodes: { ...BASE, method: "GET", path: "/v1/nodes", summary: "The nodes, as last seen.", reply: NodeList },
  nodeResources: {
    ...BASE,
    method: "GET",
    path: "/v1/nodes/{edge}/resources",
    summary: "What exists on a node against what should.",
    reply: ResourceList,
  },
  storeStatus: {
    ...BASE,
    method: "GET",
    path: "/v1/store",
    summary: "The store that nodes share, and whether it answers.",
    reply: StoreReply,
  },
} as const satisfies Record<string, Operation>;

/** The name of a call. */
export type OperationName = keyof typeof OPERATIONS;

/** The query of a call, as its handler gets it. */
export type QueryOf<Name extends OperationName> = Static<(typeof OPERATIONS)[Name]["query"]>;

/** The JSON body of a call; undefined for calls that have none or stream it. */
export type BodyOf<Name extends OperationName> = (typeof OPERATIONS)[Name]["body"] extends infer Body
  ? Body extends TSchema
    ? Static<Body>
    : undefined
  : never;
