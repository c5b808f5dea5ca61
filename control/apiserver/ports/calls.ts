import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Principal } from "../../iam/iam.ts";
import { failureOf } from "../failure.ts";
import type { Services } from "../handler.ts";
import { linger } from "../linger.ts";
import { CallScope } from "../scope.ts";
import { checkPort, type PortAddress, portAddress } from "./address.ts";
import { callerOf, enter } from "./door.ts";
import { beginExchange, type Exchange, outcomeOf, passInterim, passResponse, sendBody } from "./exchange.ts";
import { openPortStream, type PortTarget } from "./port-stream.ts";

type PortServices = Pick<Services, "access" | "iam" | "log" | "passes" | "portDomain">;

/** HTTP requests for servers in sandboxes. */
export class PortCalls {
  readonly #services: PortServices;

  constructor(services: PortServices) {
    this.#services = services;
  }

  /** Whether the request is for a port. */
  claims(request: IncomingMessage): boolean {
    return portAddress(request, this.#services.portDomain) !== undefined;
  }

  /** Serves a request that was claimed. Never rejects. */
  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const address = portAddress(request, this.#services.portDomain);
      if (address === undefined) throw new Error("a request that was not claimed");
      // Without a limit unless the client sets one: then it counts from the last progress.
      const scope = new CallScope(request, response, undefined);
      const entry = await enter(this.#services, request, address);
      if (entry !== undefined) {
        response.writeHead(303, { location: entry.location, "set-cookie": entry.cookie, "cache-control": "no-store" });
        response.end();
        return;
      }
      const principal = await callerOf(this.#services, request, address);
      const target = await reachPort(this.#services, principal, address, scope.signal);
      const stream = await openPortStream(target, scope.signal);
      await pass({ request, address, stream, signal: scope.signal, progress: () => scope.progress() }, response);
    } catch (error) {
      this.#fail(error, request, response);
    }
  }

  #fail(error: unknown, request: IncomingMessage, response: ServerResponse): void {
    const { status, body, typed } = failureOf(error);
    if (typed.kind === "Internal")
      this.#services.log.error({ err: error, url: request.url }, "a call to a port failed");
    if (response.headersSent) {
      response.destroy();
      return;
    }
    linger(request);
    // With a reason of its own: one that a server in a sandbox gave may stand here still, and be why this fails.
    response.writeHead(status, STATUS_CODES[status], {
      "content-type": "application/json; charset=utf-8",
      // What tells it from an answer of the server in the sandbox, which cannot send this header.
      "dsec-error": typed.kind,
      ...(status === 401 ? { "www-authenticate": "Bearer" } : {}),
    });
    response.end(JSON.stringify(body));
  }
}

/** The port, when the caller may use the sandbox; `NotFound` else, as for every call. */
export async function reachPort(
  { access }: Pick<Services, "access">,
  principal: Principal,
  address: PortAddress,
  signal: AbortSignal,
): Promise<PortTarget> {
  const port = checkPort(address);
  return { ...(await access.reach(principal, address.sandbox, signal)), port };
}

async function pass(exchange: Exchange, response: ServerResponse): Promise<void> {
  const outgoing = beginExchange(exchange, false);
  passInterim(outgoing, response);
  const outcome = outcomeOf(outgoing, exchange);
  sendBody(outgoing, exchange);
  const { incoming } = await outcome;
  if (await passResponse(incoming, response, exchange)) linger(exchange.request);
}
