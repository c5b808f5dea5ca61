import type { IncomingMessage, ServerResponse } from "node:http";
import type { Static, TSchema } from "typebox";
import type { BodyOf, OPERATIONS, OperationName, QueryOf } from "#api/index.ts";
import type { Clock } from "#core/clock.ts";
import type { Catalogue } from "#images/catalogue.ts";
import type { Access } from "../access.ts";
import type { ArtifactMaker, SharedStore } from "../artifacts.ts";
import type { Creator } from "../create.ts";
import type { Forks } from "../forks.ts";
import type { Invoker } from "../functions/invoker.ts";
import type { Runtimes } from "../functions/runtimes.ts";
import type { Iam, Principal } from "../iam/iam.ts";
import type { Log } from "../log.ts";
import type { PortPasses } from "../port-passes.ts";
import type { Replies } from "../replies.ts";
import type { Watcher } from "../watcher/watcher.ts";
import type { Bodies } from "./bodies.ts";
import type { CallScope } from "./scope.ts";

/** What handlers work with. Nothing in it belongs to one sandbox. */
export interface Services {
  readonly access: Access;
  readonly bodies: Bodies;
  readonly catalogue: Catalogue;
  readonly clock: Clock;
  readonly creator: Creator;
  readonly forks: Forks;
  readonly iam: Iam;
  readonly invoker: Invoker;
  readonly log: Log;
  readonly maker: ArtifactMaker;
  readonly passes: PortPasses;
  readonly runtimes: Runtimes;
  /** Below it are the hosts `{port}-{id}` of ports; undefined: they have none. */
  readonly portDomain: string | undefined;
  readonly replies: Replies;
  readonly store: SharedStore | undefined;
  readonly watcher: Watcher;
  readonly version: string;
}

/** One call, authenticated and checked. */
export interface Call<Name extends OperationName> {
  readonly principal: Principal;
  readonly params: Readonly<Record<string, string>>;
  readonly query: QueryOf<Name>;
  readonly body: BodyOf<Name>;
  readonly idempotencyKey: string | undefined;
  readonly scope: CallScope;
  /** For handlers that read or write streams. */
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** What a handler resolves with: the JSON of the reply; nothing when the reply has none or the handler has sent it. */
export type ReplyOf<Name extends OperationName> = (typeof OPERATIONS)[Name]["reply"] extends infer Reply
  ? Reply extends TSchema
    ? Static<Reply>
    : undefined
  : never;

/** Carries out one kind of call. Rejects with a `SandboxError`, before anything was sent. */
export type Handler<Name extends OperationName> = (call: Call<Name>) => Promise<ReplyOf<Name>>;

/** A handler for every call of the API: one that is missing does not compile. */
export type Handlers = { readonly [Name in OperationName]: Handler<Name> };
