import type { ListenerView, PortTicket } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { WAIT_MS } from "./command.ts";
import type { Connection } from "./connection.ts";

/** The servers in one sandbox. A port is reached over the loopback of the sandbox, from inside it. */
export class Ports {
  readonly #caller: Caller;
  readonly #path: string;

  /** Made by `Sandbox`. */
  constructor(caller: Caller, sandboxPath: string) {
    this.#caller = caller;
    this.#path = `${sandboxPath}/ports`;
  }

  /** Who listens for TCP connections now. */
  async list(options: CallOptions = {}): Promise<readonly ListenerView[]> {
    const call = { ...options, method: "GET", path: this.#path } as const;
    return (await this.#caller.json<{ readonly listeners: readonly ListenerView[] }>(call)).listeners;
  }

  /** Resolves when a server listens on the port, without connecting to it. A `TimeoutError` after `timeoutMs`; without, it waits on. */
  async wait(port: number, options: CallOptions = {}): Promise<void> {
    const endsAt = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + options.timeoutMs;
    const patience = this.#caller.patience(options);
    for (;;) {
      try {
        if (await this.#isListening(port, Math.max(1, endsAt - Date.now()), options.signal)) return;
        patience.progressed();
      } catch (error) {
        await patience.broke(error);
        continue;
      }
      if (Date.now() >= endsAt) throw new DOMException(`nobody listens on port ${port}`, "TimeoutError");
    }
  }

  /** Whether somebody listens, or begins to while the server waits. */
  async #isListening(port: number, leftMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const { listening } = await this.#caller.json<{ readonly listening: boolean }>({
      method: "GET",
      path: `${this.#path}/wait`,
      query: { port, waitMs: Math.min(WAIT_MS, leftMs) },
      signal,
      timeoutMs: Math.min(2 * WAIT_MS, leftMs + WAIT_MS),
      repeatable: false,
    });
    return listening;
  }

  /** The URL of a server in the sandbox, for any HTTP client that sends the token as `Authorization: Bearer …`. */
  url(port: number, path = "/"): string {
    return this.#caller.url(`${this.#path}/${port}${path.startsWith("/") ? path : `/${path}`}`);
  }

  /**
   * A URL that opens the port in a browser, on a host of its own: it works once and within a minute, and the browser is let in for
   * half a day. `FailedPrecondition` when the server has no domain for such hosts.
   */
  async open(port: number, options: CallOptions = {}): Promise<string> {
    const call = {
      ...options,
      method: "POST",
      path: `${this.#path}/tickets`,
      json: { port },
      repeatable: true,
    } as const;
    const { host, ticket } = await this.#caller.json<PortTicket>(call);
    const url = new URL(this.#caller.url("/"));
    url.hostname = host;
    url.searchParams.set("dsec-ticket", ticket);
    return url.href;
  }

  /** A TCP connection to a port. The signal ends the wait for it, not the connection. */
  connect(port: number, options: Pick<CallOptions, "signal"> = {}): Promise<Connection> {
    return this.#caller.connect(`${this.#path}/${port}`, options.signal);
  }
}
