import type { TSchema } from "typebox";
import * as api from "#api/index.ts";

type Json = Readonly<Record<string, unknown>>;

/** The API as an OpenAPI 3.1 document, made from the table of calls: what the server checks is what the document says. */
export function openApi(version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const [name, operation] of Object.entries<api.Operation>(api.OPERATIONS)) {
    paths[operation.path] = { ...paths[operation.path], [operation.method.toLowerCase()]: describe(name, operation) };
  }
  return {
    openapi: "3.1.0",
    info: { title: "DSec", version, license: { name: "Apache-2.0", identifier: "Apache-2.0" } },
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: Object.fromEntries([...NAMES].map(([schema, name]) => [name, schema])),
    },
  };
}

// Schemas that several calls share, by what clients call them.
const NAMES: ReadonlyMap<TSchema, string> = new Map<TSchema, string>([
  [api.ArtifactList, "ArtifactList"],
  [api.ArtifactView, "ArtifactView"],
  [api.BuildEvent, "BuildEvent"],
  [api.BuildRequest, "BuildRequest"],
  [api.CommandList, "CommandList"],
  [api.CommandReply, "CommandReply"],
  [api.CommandView, "CommandView"],
  [api.CreateManyEvent, "CreateManyEvent"],
  [api.CreateManyRequest, "CreateManyRequest"],
  [api.CreateSandbox, "CreateSandbox"],
  [api.ErrorBody, "ErrorBody"],
  [api.FileView, "FileView"],
  [api.FileWrittenView, "FileWrittenView"],
  [api.TreeWrittenView, "TreeWrittenView"],
  [api.WatchLine, "WatchLine"],
  [api.WatchView, "WatchView"],
  [api.Health, "Health"],
  [api.OutputEvent, "OutputEvent"],
  [api.NodeList, "NodeList"],
  [api.ResourceList, "ResourceList"],
  [api.RemoveManyEvent, "RemoveManyEvent"],
  [api.RunManyEvent, "RunManyEvent"],
  [api.RunManyRequest, "RunManyRequest"],
  [api.SandboxList, "SandboxList"],
  [api.SandboxPatch, "SandboxPatch"],
  [api.UsageEvent, "UsageEvent"],
  [api.UsageView, "UsageView"],
  [api.SandboxView, "SandboxView"],
  [api.OpenSession, "OpenSession"],
  [api.RunLine, "RunLine"],
  [api.SessionList, "SessionList"],
  [api.SessionView, "SessionView"],
  [api.SignalCommand, "SignalCommand"],
  [api.StartCommand, "StartCommand"],
  [api.StdinReply, "StdinReply"],
  [api.WhoAmI, "WhoAmI"],
]);

function describe(operationId: string, operation: api.Operation): Json {
  return {
    operationId,
    summary: operation.summary,
    ...(operation.open ? { security: [] } : {}),
    parameters: [...pathParameters(operation), ...queryParameters(operation), ...headers(operation)],
    ...requestBody(operation),
    responses: {
      [operation.status]: { description: "Success.", headers: LIMIT_HEADER, ...replyContent(operation) },
      default: { description: "Any failure.", content: { "application/json": { schema: refTo(api.ErrorBody) } } },
    },
  };
}

const LIMIT_HEADER = {
  "Dsec-Timeout-Ms": { description: "The time limit in force; absent: none.", schema: { type: "integer" } },
};

function pathParameters({ path }: api.Operation): readonly Json[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => parameter(name ?? "", "path", { type: "string" }, true));
}

function queryParameters({ query }: api.Operation): readonly Json[] {
  const required = new Set<string>(query.required ?? []);
  return Object.entries<TSchema>(query.properties).map(([name, schema]) =>
    parameter(name, "query", schema, required.has(name)),
  );
}

function headers({ idempotencyKey }: api.Operation): readonly Json[] {
  const timeout = parameter("Dsec-Timeout-Ms", "header", { type: "integer", minimum: 1 }, false);
  return idempotencyKey ? [timeout, parameter("Idempotency-Key", "header", { type: "string" }, false)] : [timeout];
}

function parameter(name: string, place: string, schema: object, required: boolean): Json {
  return { name, in: place, required, schema };
}

function requestBody({ body }: api.Operation): Json {
  if (body === "none") return {};
  return { requestBody: { required: true, content: body === "bytes" ? BYTES : jsonOf(body) } };
}

function replyContent({ reply, events }: api.Operation): Json {
  if (reply === "none") return {};
  if (reply === "bytes") return { content: { ...BYTES, ...(events === undefined ? {} : eventsOf(events)) } };
  return { content: "line" in reply ? { "application/x-ndjson": { schema: refTo(reply.line) } } : jsonOf(reply) };
}

const BYTES = { "application/octet-stream": { schema: { type: "string", format: "binary" } } };

function eventsOf(schema: TSchema): Json {
  return { "application/x-ndjson": { schema: refTo(schema) }, "text/event-stream": { schema: refTo(schema) } };
}

function jsonOf(schema: TSchema): Json {
  return { "application/json": { schema: refTo(schema) } };
}

function refTo(schema: TSchema): object {
  const name = NAMES.get(schema);
  return name === undefined ? schema : { $ref: `#/components/schemas/${name}` };
}
