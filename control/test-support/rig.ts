import assert from "node:assert/strict";
import * as http from "node:http";
import type {
  ArtifactList,
  ArtifactView,
  CommandList,
  CommandReply,
  ErrorBody,
  FileView,
  FileWrittenView,
  ForkView,
  NodeList,
  PortTicket,
  SandboxList,
  SandboxView,
  SessionView,
} from "#api/index.ts";
import type { Clock } from "#core/clock.ts";
import type { ArtifactKind, LayerDigest } from "#core/sandbox.ts";
import type { NewArtifact } from "#images/catalogue.ts";
import type { OpenExport } from "#images/export/export.ts";
import type {
  ArtifactMaker,
  DebianRequest,
  ExportRequest,
  ExportToRequest,
  ImportRequest,
  SharedStore,
  SourceRequest,
  VmImageRequest,
} from "../artifacts.ts";
import { type Control, openControl } from "../control.ts";
import { MemoryState } from "../state/memory.ts";
import type { StateStore } from "../state/store.ts";
import { SILENT, TestNode } from "./test-node.ts";

/** A control plane over one test node, listening on loopback, with a base `busybox`. */
export interface Rig extends AsyncDisposable {
  readonly control: Control;
  readonly node: TestNode;
  readonly maker: TestMaker;
  readonly state: StateStore;
  readonly url: string;
  /** The root's token. */
  readonly token: string;
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** A sandbox on the test node. */
  sandbox(): Promise<string>;
}

/** What a call may send. `token` null: none. */
export interface CallOptions {
  readonly json?: unknown;
  readonly body?: Uint8Array | string | AsyncIterable<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly token?: string | null;
}

/** What came back. */
export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly trailers: NodeJS.Dict<string>;
  readonly bytes: Buffer;
  readonly json: AnyReply;
}

/** The JSON of every reply in one: a test reads what its call has. */
export type AnyReply = ErrorBody &
  SandboxView &
  SandboxList &
  Omit<CommandReply, "status"> & { readonly status: NonNullable<CommandReply["status"]> } & CommandList &
  Omit<FileView & FileWrittenView, "name"> &
  ArtifactView &
  ArtifactList &
  PortTicket &
  ForkView &
  NodeList & { readonly sessions: readonly SessionView[] } & { readonly offset: number; readonly openapi: string } & {
    readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly operationId: string }>>>>;
    readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
  };

/** Starts a rig; more nodes and another store of state on demand. */
export async function rig(
  options: {
    readonly nodes?: readonly TestNode[];
    readonly state?: StateStore;
    readonly portDomain?: string;
    readonly store?: SharedStore;
    readonly clock?: Clock;
    readonly bodyBytes?: number;
  } = {},
): Promise<Rig> {
  const nodes = options.nodes ?? [new TestNode("n1")];
  const [node] = nodes;
  assert.ok(node !== undefined);
  const state = options.state ?? new MemoryState();
  const maker = new TestMaker();
  const control = await openControl({
    config: {
      host: "127.0.0.1",
      port: 0,
      version: "test",
      bodyBytes: options.bodyBytes ?? 1024 * 1024 * 1024,
      defaultBackend: "container",
      runtimeDirectories: [],
      seed: 1,
      buildCacheMs: 500_000,
      portDomain: options.portDomain,
    },
    state,
    nodes: nodes.map((each) => ({ edge: each.edge, node: each })),
    maker,
    store: options.store,
    log: SILENT,
    ...(options.clock && { clock: options.clock }),
  });
  const url = await control.listen();
  const token = control.rootToken ?? "";
  const call = (method: string, path: string, more: CallOptions = {}) => send(url, method, path, { token, ...more });
  if (token !== "") await call("POST", "/v1/artifacts/import?name=busybox&kind=base", { body: "tar" });
  return {
    control,
    node,
    maker,
    state,
    url,
    token,
    call,
    async sandbox() {
      const { status, json } = await call("POST", "/v1/sandboxes", { json: { base: "busybox" } });
      assert.equal(status, 201, JSON.stringify(json));
      return json.id;
    },
    [Symbol.asyncDispose]: () => control.close(),
  };
}

/** One HTTP exchange on a connection of its own. */
export function send(url: string, method: string, path: string, options: CallOptions = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string> = { ...options.headers };
    if (options.token !== undefined && options.token !== null) headers.authorization = `Bearer ${options.token}`;
    if (options.json !== undefined) headers["content-type"] = "application/json";
    const { hostname, port } = new URL(url);
    const request = http.request({ hostname, port, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => resolve(answer(response, Buffer.concat(chunks))));
    });
    request.on("error", reject);
    void feed(request, options.json === undefined ? options.body : JSON.stringify(options.json));
  });
}

async function feed(request: http.ClientRequest, body: CallOptions["body"]): Promise<void> {
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  for await (const chunk of body) {
    if (request.destroyed) return;
    if (!request.write(chunk)) await writable(request);
  }
  request.end();
}

function writable(request: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      request.off("drain", settle);
      request.off("close", settle);
      resolve();
    };
    request.on("drain", settle);
    request.on("close", settle);
  });
}

function answer(response: http.IncomingMessage, bytes: Buffer): Answer {
  const isJson = (response.headers["content-type"] ?? "").startsWith("application/json");
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    trailers: response.trailers,
    bytes,
    json: (isJson ? JSON.parse(bytes.toString()) : undefined) as AnyReply,
  };
}

/** Makes artifacts out of nothing: the layer is named by a counter. */
export class TestMaker implements ArtifactMaker {
  readonly kept: ReadonlySet<LayerDigest>[] = [];
  received = 0;
  build: (request: DebianRequest) => Promise<void> = async () => undefined;
  fetch: (request: SourceRequest) => Promise<void> = async () => undefined;
  #made = 0;

  async importArchive({ kind, format, source }: ImportRequest): Promise<NewArtifact> {
    for await (const chunk of source) this.received += chunk.length;
    return this.#artifact(kind, `${format} upload`);
  }

  async importVmImage({ source, shape }: VmImageRequest): Promise<NewArtifact> {
    for await (const chunk of source) this.received += chunk.length;
    const { config, ...artifact } = this.#artifact("vm-image", "qcow2 upload");
    return { ...artifact, config: { ...config, computer: shape } };
  }

  async buildDebian(request: DebianRequest): Promise<NewArtifact> {
    await this.build(request);
    return this.#artifact(request.kind, `debian ${request.suite} ${request.include.join()}`);
  }

  async importFrom(request: SourceRequest): Promise<NewArtifact> {
    await this.fetch(request);
    return this.#artifact(request.kind, request.source.type);
  }

  async layers(digests: readonly LayerDigest[]) {
    const sizes = { isMounted: false, sizeBytes: 8192, presentBytes: 4096, hits: 3, misses: 1 } as const;
    return digests.map((layer) => ({ layer, state: "lazy" as const, ...sizes }));
  }

  async openExport({ artifact }: ExportRequest): Promise<OpenExport> {
    async function* bytes() {
      yield Buffer.from(artifact.digest);
    }
    return { bytes: bytes(), [Symbol.asyncDispose]: async () => undefined };
  }

  async exportToRegistry({ progress }: ExportToRequest): Promise<void> {
    progress("sending");
  }

  async collect(keep: ReadonlySet<LayerDigest>): Promise<readonly LayerDigest[]> {
    this.kept.push(keep);
    return [];
  }

  async garbage(keep: ReadonlySet<LayerDigest>) {
    this.kept.push(keep);
    return { layers: [`sha256:${"f".repeat(64)}` as LayerDigest], bytes: 7 };
  }

  #artifact(kind: ArtifactKind, provenance: string): NewArtifact {
    this.#made += 1;
    const layer = `sha256:${String(this.#made).padStart(64, "0")}` as LayerDigest;
    return {
      kind,
      layers: [layer],
      config: { env: {}, user: undefined, workdir: undefined },
      sizeBytes: 1,
      provenance,
    };
  }
}

/** The token of a member of a new project, who has imported the base `own`. */
export async function memberOf(api: Rig, project: string): Promise<string> {
  await api.control.iam.createProject(project);
  const token = await api.control.iam.createToken({ name: "m", project, role: "member" });
  await api.call("POST", "/v1/artifacts/import?name=own&kind=base", { body: "tar", token });
  return token;
}
