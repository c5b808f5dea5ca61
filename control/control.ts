import { type Clock, systemClock } from "#core/clock.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { EdgeId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { BackendKind } from "#core/sandbox.ts";
import { Access } from "./access.ts";
import { Bodies } from "./apiserver/bodies.ts";
import { collect, neededLayers } from "./apiserver/collecting.ts";
import { apiserver } from "./apiserver/server.ts";
import { type ArtifactMaker, catalogueOf, type SharedStore } from "./artifacts.ts";
import { Creator } from "./create.ts";
import { Forks } from "./forks.ts";
import { Invoker } from "./functions/invoker.ts";
import { Runtimes } from "./functions/runtimes.ts";
import { Iam } from "./iam/iam.ts";
import { IdempotencyKeys } from "./idempotency.ts";
import type { Log } from "./log.ts";
import { seededRandom } from "./placement/random.ts";
import { PortPasses } from "./port-passes.ts";
import { Replies } from "./replies.ts";
import type { StateStore } from "./state/store.ts";
import { Watcher } from "./watcher/watcher.ts";

/** What a control plane is made of. The caller keeps what it passes in, and closes it after the control plane. */
export interface ControlOptions {
  readonly config: ControlConfig;
  readonly state: StateStore;
  /** The nodes known from the start; more may be added to `watcher`. */
  readonly nodes: readonly { readonly edge: EdgeId; readonly node: Node }[];
  readonly maker: ArtifactMaker;
  /** That nodes share; undefined: none. */
  readonly store?: SharedStore | undefined;
  readonly log: Log;
  readonly clock?: Clock;
}

/** Settings of a control plane. */
export interface ControlConfig {
  readonly host: string;
  /** 0: one that is free. */
  readonly port: number;
  readonly version: string;
  /** In lower case. Below it are the hosts `{port}-{id}` of ports; undefined: they have none. */
  readonly portDomain?: string | undefined;
  /** For bodies of calls, held at once. */
  readonly bodyBytes: number;
  /** For creates that name none. */
  readonly defaultBackend: BackendKind;
  /** Starts the sequence of random numbers that spreads sandboxes. */
  readonly seed: number;
  /** Steps of builds that none has used for so long are forgotten. */
  readonly buildCacheMs: number;
  /** Of runtimes of functions, a folder each; those of later ones replace those of earlier ones. */
  readonly runtimeDirectories: readonly string[];
}

/** A running control plane. */
export interface Control extends AsyncDisposable {
  /** Resolves with the URL once calls are answered. `FailedPrecondition` when the address is taken or not allowed. */
  listen(): Promise<string>;
  /** Calls under way are cut off; sandboxes are not touched. Safe twice. */
  close(): Promise<void>;
  readonly watcher: Watcher;
  readonly iam: Iam;
  /** The root's token, on the very first start only: it is stored nowhere. */
  readonly rootToken: string | undefined;
}

const SWEEP_MS = 600_000;
/** Names of what builders keep of their steps: see `client/build`. */
const BUILD_CACHE = "build-cache/";

/** Starts all parts but the listener: every node was asked once when it resolves, answered or not. */
export async function openControl({
  config,
  state,
  nodes,
  maker,
  store,
  log,
  clock = systemClock,
}: ControlOptions): Promise<Control> {
  const iam = new Iam(state, clock);
  const keys = new IdempotencyKeys(state, clock);
  const watcher = new Watcher({ clock, log });
  const catalogue = catalogueOf(state, clock, store);
  const random = seededRandom(config.seed);
  const creator = new Creator({ catalogue, watcher, keys, random, backend: config.defaultBackend });
  const access = new Access(watcher);
  const passes = new PortPasses(state, clock);
  const replies = new Replies(keys);
  const invoker = new Invoker(watcher);
  const runtimes = new Runtimes({ directories: config.runtimeDirectories, catalogue, maker });
  const { version, portDomain } = config;
  const parts = { access, catalogue, clock, creator, iam, invoker, log, maker, passes, replies, runtimes };
  const own = { bodies: new Bodies(config.bodyBytes), forks: new Forks(watcher, random) };
  const app = apiserver({ ...parts, ...own, portDomain, store, watcher, version });
  const rootToken = await iam.bootstrap();
  await catalogue.resume();
  await Promise.all(nodes.map(({ edge, node }) => watcher.add(edge, node)));
  const unused = {
    async sweep() {
      await catalogue.expire(BUILD_CACHE, clock.now() - config.buildCacheMs);
      await collect({ catalogue, clock, creator, maker, watcher }, AbortSignal.timeout(SWEEP_MS));
    },
  };
  const sweeping = sweepAgainAndAgain(
    [keys, passes, unused, needsOf({ catalogue, creator, watcher }, store)],
    clock,
    log,
  );
  const close = async () => {
    sweeping[Symbol.dispose]();
    watcher[Symbol.dispose]();
    await app.close();
  };
  const listen = () => app.listen({ host: config.host, port: config.port }).catch((error) => taken(error, config));
  return { listen, close, watcher, iam, rootToken, [Symbol.asyncDispose]: close };
}

/** Says in the store, again and again, what is needed here. */
function needsOf(parts: Parameters<typeof neededLayers>[0], store: SharedStore | undefined) {
  return {
    async sweep() {
      const signal = AbortSignal.timeout(SWEEP_MS);
      await store?.release(await neededLayers(parts, signal), signal);
    },
  };
}

function taken(error: unknown, { host, port }: ControlConfig): never {
  if (!hasCode(error, "EADDRINUSE", "EACCES", "EADDRNOTAVAIL")) throw error;
  const used = hasCode(error, "EADDRINUSE");
  throw new SandboxError(
    "FailedPrecondition",
    `cannot listen on ${host}:${port}${used ? ": the port is in use" : ""}`,
    {
      cause: error,
      hint: used
        ? "stop what listens there, or choose another port with --listen (DSEC_LISTEN)"
        : "choose an address of this machine with --listen (DSEC_LISTEN)",
      details: { host, port },
    },
  );
}

function sweepAgainAndAgain(kept: readonly { sweep(): Promise<void> }[], clock: Clock, log: Log): Disposable {
  let timer: Disposable;
  const sweep = () => {
    for (const each of kept)
      each.sweep().catch((error: unknown) => log.warn({ err: error }, "what nothing needs any more was not swept"));
    timer = clock.after(SWEEP_MS, sweep);
  };
  timer = clock.after(SWEEP_MS, sweep);
  return { [Symbol.dispose]: () => timer[Symbol.dispose]() };
}
