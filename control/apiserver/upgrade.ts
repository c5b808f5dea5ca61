import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { FastifyInstance } from "fastify";
import { SandboxError } from "#core/errors.ts";
import type { Principal } from "../iam/iam.ts";
import { failureOf } from "./failure.ts";
import type { Services } from "./handler.ts";
import { endConnection } from "./linger.ts";

/** The subprotocol under which a browser, which cannot set headers, sends its token; the server never picks it. */
const TOKEN_PROTOCOL = "dsec.bearer.";

/** One kind of call that leaves HTTP: its connection carries other bytes once it is accepted. */
export interface UpgradeRoute {
  /** Whether the request is of this kind. Requests that no route claims are answered as if they asked for no upgrade. */
  claims(request: IncomingMessage): boolean;
  /** Who asks, where more than a token may say it. Rejects with `Unauthenticated`. */
  authenticate?(request: IncomingMessage): Promise<Principal>;
  /**
   * Takes the connection over. Rejects with a `SandboxError` before anything was sent: then it becomes the HTTP reply, as of
   * every call. What goes wrong later is the route's to tell in its own form.
   */
  take(call: UpgradeCall): Promise<void>;
}

/** An authenticated request for an upgrade. */
export interface UpgradeCall {
  readonly principal: Principal;
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  /** What the client sent behind its request. */
  readonly head: Buffer;
  /** Fires when the connection has ended. */
  readonly signal: AbortSignal;
}

/** The values of a path of the API, as `/v1/sandboxes/{id}`, in a request's URL; undefined when it is another path. */
export function pathReader(template: string): (url: string) => Readonly<Record<string, string>> | undefined {
  const pattern = new RegExp(`^${template.replaceAll(/\{(\w+)\}/g, "(?<$1>[^/?]+)")}(?:\\?|$)`);
  return (url) => {
    const groups = pattern.exec(url)?.groups;
    return groups === undefined ? undefined : { ...groups };
  };
}

/** What decides over the requests of one server that ask for an upgrade. */
export class Upgrades {
  readonly #services: Pick<Services, "iam" | "log">;
  readonly #routes: readonly UpgradeRoute[];
  readonly #sockets = new Set<Duplex>();

  constructor(services: Pick<Services, "iam" | "log">, routes: readonly UpgradeRoute[]) {
    this.#services = services;
    this.#routes = routes;
  }

  /** For the server's `shouldUpgradeCallback`: everything else, an offer of HTTP/2 say, stays a plain request. */
  readonly claims = (request: IncomingMessage): boolean => this.#routes.some((route) => route.claims(request));

  /** Serves the upgrades of `app`; its end cuts them. */
  attach(app: FastifyInstance): void {
    app.server.on("upgrade", (request, socket, head) => void this.#serve(request, socket, head));
    app.addHook("preClose", async () => {
      for (const socket of this.#sockets) socket.destroy();
    });
  }

  async #serve(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const left = new AbortController();
    this.#sockets.add(socket);
    // The connection's end is told by `close`; without a listener its error would end the process.
    socket.on("error", () => undefined);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      left.abort(new SandboxError("Cancelled", "the client left"));
    });
    try {
      const route = this.#routes.find((each) => each.claims(request));
      if (route === undefined) throw new Error("an upgrade that nobody claims");
      const principal = await (route.authenticate?.(request) ??
        this.#services.iam.authenticate(authorizationOf(request)));
      await route.take({ principal, request, socket, head, signal: left.signal });
    } catch (error) {
      this.#refuse(error, request, socket);
    }
  }

  #refuse(error: unknown, { url }: IncomingMessage, socket: Duplex): void {
    const { status, body, typed } = failureOf(error);
    if (typed.kind === "Internal") this.#services.log.error({ err: error, url }, "an upgrade failed");
    const text = JSON.stringify(body);
    const head = `HTTP/1.1 ${status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}`;
    endConnection(socket, `${head}\r\nConnection: close\r\n\r\n${text}`);
  }
}

/** The header, or what stands for it among the subprotocols that the client offers. */
export function authorizationOf({ headers }: IncomingMessage): string | undefined {
  if (headers.authorization !== undefined) return headers.authorization;
  const offered = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  const token = offered.find((name) => name.startsWith(TOKEN_PROTOCOL))?.slice(TOKEN_PROTOCOL.length);
  return token === undefined ? undefined : `Bearer ${token}`;
}
