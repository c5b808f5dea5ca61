import * as http from "node:http";
import type { Socket } from "node:net";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { TSchema } from "typebox";
import { OPERATIONS, type Operation, type OperationName } from "#api/index.ts";
import type { ByteHold } from "#core/bytes/byte-budget.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { Principal } from "../iam/iam.ts";
import { attachRoute } from "./attach/route.ts";
import { channelRoute } from "./channels/route.ts";
import { failureOf } from "./failure.ts";
import type { Call, Handlers, Services } from "./handler.ts";
import { parseJson } from "./json.ts";
import { endConnection, linger } from "./linger.ts";
import { PortCalls } from "./ports/calls.ts";
import { portRoute } from "./ports/route.ts";
import { queryReader } from "./query.ts";
import { artifactHandlers } from "./routes/artifacts.ts";
import { batchHandlers } from "./routes/batches.ts";
import { catalogueHandlers } from "./routes/catalogue.ts";
import { commandHandlers } from "./routes/commands.ts";
import { computerHandlers } from "./routes/computers.ts";
import { exportHandlers } from "./routes/exports.ts";
import { fileHandlers } from "./routes/files.ts";
import { functionHandlers } from "./routes/functions.ts";
import { layerHandlers } from "./routes/layers.ts";
import { packingHandlers } from "./routes/packing.ts";
import { portHandlers } from "./routes/ports.ts";
import { sandboxHandlers } from "./routes/sandboxes.ts";
import { sessionHandlers } from "./routes/sessions.ts";
import { systemHandlers } from "./routes/system.ts";
import { treeHandlers } from "./routes/trees.ts";
import { usageHandlers } from "./routes/usage.ts";
import { CallScope, untilAborted } from "./scope.ts";
import { Upgrades } from "./upgrade.ts";
import { validator } from "./validate.ts";

/** A JSON body holds at most a command line, and Linux takes 6 MiB of those; base64 adds a third. */
const MAX_JSON_BYTES = 8 * 1024 * 1024;
/** Inputs and files of functions come with their call; its answer is as large at most. */
const MAX_FUNCTION_BYTES = 128 * 1024 * 1024;
/** A connection without a call is kept so long: longer than clients do, so that it is they who close. */
const KEEP_ALIVE_MS = 72_000;
/** Nobody is known by name before the headers are there: whoever sends them more slowly is let go. */
const HEADERS_LIMIT_MS = 60_000;
const MAX_KEY_LENGTH = 256;
const CALL_LIMIT_MS = 60_000;
/**
 * A transfer of files, or of results that are held until they are read, that stands still for so long is given up. Other streams may rest: a quiet command is not
 * stuck.
 */
const STALL_LIMIT_MS = 300_000;
const LIMITS: Readonly<Partial<Record<OperationName, number>>> = {
  createSandbox: 120_000,
  readFile: STALL_LIMIT_MS,
  writeFile: STALL_LIMIT_MS,
  readTree: STALL_LIMIT_MS,
  writeTree: STALL_LIMIT_MS,
  // It may wait for its turn, compile, and run through many tests.
  invokeFunction: 600_000,
  // Its beats are progress, as long as somebody takes them.
  invokeMany: STALL_LIMIT_MS,
};
const BODY_LIMITS: Readonly<Partial<Record<OperationName, number>>> = {
  invokeFunction: MAX_FUNCTION_BYTES,
  invokeMany: MAX_FUNCTION_BYTES,
  startFunction: MAX_FUNCTION_BYTES,
};

declare module "fastify" {
  interface FastifyRequest {
    scope: CallScope | undefined;
    /** Memory for its body, if that is large. */
    hold: ByteHold | undefined;
    principal: Principal | undefined;
  }
}

/** The HTTP server with every call of the API, not listening yet. */
export function apiserver(services: Services): FastifyInstance {
  // Ports first: on their hosts nothing of the API answers.
  const upgrades = new Upgrades(services, [
    portRoute(services),
    attachRoute(services),
    channelRoute(services, "openDisplay"),
    channelRoute(services, "openConsole"),
  ]);
  const app = Fastify({
    logger: false,
    serverFactory: (handle) => newServer(handle, upgrades, new PortCalls(services)),
    bodyLimit: MAX_JSON_BYTES,
    forceCloseConnections: true,
    clientErrorHandler: (error, socket) => refuseUnreadable(error, socket),
    frameworkErrors: (error, request, reply) => fail(services, error, request, reply),
    // Queries are read with their schema, from the raw URL: paths are bytes.
    routerOptions: { querystringParser: () => ({}), maxParamLength: 1024 },
  });
  app.decorateRequest("scope", undefined);
  app.decorateRequest("hold", undefined);
  app.decorateRequest("principal", undefined);
  app.setErrorHandler((error, request, reply) => fail(services, error, request, reply));
  app.setNotFoundHandler(async (request) => {
    await services.iam.authenticate(request.headers.authorization);
    throw new SandboxError("NotFound", `no call ${request.method} ${request.url.split("?")[0]?.slice(0, 200)}`, {
      hint: "GET /openapi.json lists every call",
    });
  });
  app.server.on("connection", (socket) => socket.setKeepAlive(true, 30_000));
  upgrades.attach(app);
  void app.register(async (scope) => addRoutes(scope, services, "json"));
  void app.register(async (scope) => addRoutes(scope, services, "bytes"));
  return app;
}

/** Requests for ports pass by the framework: their paths, methods and bodies are not its to read. */
function newServer(handle: http.RequestListener, upgrades: Upgrades, ports: PortCalls): http.Server {
  const serve: http.RequestListener = (request, response) => {
    if (ports.claims(request)) void ports.serve(request, response);
    else handle(request, response);
  };
  const server = http.createServer(
    {
      shouldUpgradeCallback: upgrades.claims,
      keepAliveTimeout: KEEP_ALIVE_MS,
      // Without a limit for whole requests Node has none for headers either, unless it is told.
      requestTimeout: 0,
      headersTimeout: HEADERS_LIMIT_MS,
    },
    serve,
  );
  server.on("checkContinue", (request: http.IncomingMessage, response: http.ServerResponse) => {
    // Whether the body is wanted is the server's to say, and then the client's to hear.
    if (!ports.claims(request)) response.writeContinue();
    serve(request, response);
  });
  return server;
}

function addRoutes(app: FastifyInstance, services: Services, part: "json" | "bytes"): void {
  app.removeAllContentTypeParsers();
  if (part === "bytes") app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  else {
    const options = { parseAs: "buffer" } as const;
    app.addContentTypeParser("application/json", options, async (request: FastifyRequest, body: Buffer) => {
      request.hold?.resize(body.length);
      return body.length === 0 ? undefined : parseJson(body);
    });
  }
  const handlers = handlersOf(services);
  for (const name of Object.keys(OPERATIONS) as OperationName[]) {
    if ((OPERATIONS[name].body === "bytes") === (part === "bytes")) addRoute(app, services, name, handlers);
  }
}

function handlersOf(services: Services): Handlers {
  return {
    ...systemHandlers(services),
    ...sandboxHandlers(services),
    ...packingHandlers(services),
    ...batchHandlers(services),
    ...usageHandlers(services),
    ...commandHandlers(services),
    ...sessionHandlers(services),
    ...fileHandlers(services),
    ...treeHandlers(services),
    ...portHandlers(services),
    ...computerHandlers(services),
    ...artifactHandlers(services),
    ...functionHandlers(services),
    ...layerHandlers(services),
    ...exportHandlers(services),
    ...catalogueHandlers(services),
  };
}

function addRoute(app: FastifyInstance, services: Services, name: OperationName, handlers: Handlers): void {
  const { bodies, iam } = services;
  const operation: Operation = OPERATIONS[name];
  const read = reader(operation);
  // The table gives a call's types by its name; here, where all names pass, only the table knows that they fit.
  const handle = handlers[name] as (call: Call<OperationName>) => Promise<unknown>;
  const limitMs = LIMITS[name] ?? (operation.streams ? undefined : CALL_LIMIT_MS);
  const mostBytes = BODY_LIMITS[name] ?? MAX_JSON_BYTES;
  app.route({
    method: operation.method,
    bodyLimit: mostBytes,
    url: operation.path.replaceAll(/\{(\w+)\}/g, ":$1"),
    async onRequest(request, reply) {
      request.scope = new CallScope(request.raw, reply.raw, limitMs);
      if (operation.open) return;
      const principal = await iam.authenticate(request.headers.authorization);
      request.principal = principal;
      if (operation.body === "bytes") return;
      const { signal } = request.scope;
      const refuse = (reason: unknown) => fail(services, reason, request, reply);
      const owner = { project: principal.project, mostBytes, signal, refuse };
      request.hold = await bodies.room(request.raw, reply.raw, owner);
    },
    async handler(request, reply) {
      const call = read(request, reply);
      const answer = await untilAborted(handle(call), call.scope.signal);
      // Streams, and what is too long for one text, have been sent by their handlers.
      if (reply.raw.headersSent) return reply.hijack();
      return reply.code(operation.status).send(answer);
    },
  });
}

/** Makes a request a call: query and body checked, headers read. */
function reader(operation: Operation): (request: FastifyRequest, reply: FastifyReply) => Call<OperationName> {
  const readQuery = queryReader(operation.query);
  const checkBody = typeof operation.body === "string" ? () => undefined : requiredBody(operation.body);
  return (request, reply) => {
    const { scope, principal, raw } = request;
    if (scope === undefined) throw new Error("a call without a scope");
    return {
      principal: principal ?? NOBODY,
      params: request.params,
      query: readQuery(raw.url ?? ""),
      body: checkBody(request.body),
      idempotencyKey: operation.idempotencyKey ? keyOf(request.headers["idempotency-key"]) : undefined,
      scope,
      request: raw,
      response: reply.raw,
    } as Call<OperationName>;
  };
}

/** Stands for the caller of the calls that need no token. */
const NOBODY: Principal = { name: "", project: "", role: "member" };

function requiredBody(schema: TSchema): (value: unknown) => unknown {
  const check = validator(schema, "body");
  return (value) => {
    if (value !== undefined) return check(value);
    throw new SandboxError("InvalidArgument", "the call needs a body", {
      hint: "send JSON; {} when nothing is to be said",
    });
  };
}

function keyOf(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header === "string" && header.length >= 1 && header.length <= MAX_KEY_LENGTH) return header;
  throw new SandboxError("InvalidArgument", `the header Idempotency-Key must have 1 to ${MAX_KEY_LENGTH} characters`, {
    details: { field: "Idempotency-Key" },
  });
}

/** What is not HTTP gets the same body as every other refusal, and the connection ends: its framing is lost. */
function refuseUnreadable(error: Error, socket: Socket): void {
  if (!socket.writable || hasCode(error, "ECONNRESET")) {
    socket.destroy(error);
    return;
  }
  const large = hasCode(error, "HPE_HEADER_OVERFLOW");
  const kind = large ? "TooLarge" : "InvalidArgument";
  const refusal = new SandboxError(kind, large ? "the headers are too large" : "the request is not HTTP/1.1");
  const { status, body } = failureOf(refusal);
  const text = JSON.stringify(body);
  const head = `HTTP/1.1 ${status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}`;
  endConnection(socket, `${head}\r\nConnection: close\r\n\r\n${text}`);
}

function fail({ log }: Services, error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const { status, body, typed } = failureOf(error);
  if (typed.kind === "Internal") log.error({ err: error, method: request.method, url: request.url }, "a call failed");
  if (reply.raw.headersSent) {
    reply.hijack();
    reply.raw.destroy();
    return;
  }
  linger(request.raw);
  const { retryAfterMs } = typed.details;
  if (typeof retryAfterMs === "number") reply.header("retry-after", Math.ceil(retryAfterMs / 1000));
  if (status === 401) reply.header("www-authenticate", "Bearer");
  reply.code(status).send(body);
}
