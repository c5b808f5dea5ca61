import type { AddressInfo } from "node:net";
import { connect, createServer, type Server, type Socket } from "node:net";

/** A TCP proxy on loopback that breaks every connection after so many bytes from the server, as bad networks do. */
export class BreakingProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #allowance: () => number;
  /** Connections that were broken so far. */
  broken = 0;

  private constructor(target: { readonly host: string; readonly port: number }, allowance: () => number) {
    this.#allowance = allowance;
    this.#server = createServer((near) => this.#join(near, connect(target)));
  }

  /** `allowance` says for each connection how many bytes it lives for, in either direction. */
  static async open(url: string, allowance: () => number): Promise<BreakingProxy> {
    const { hostname: host, port } = new URL(url);
    const proxy = new BreakingProxy({ host, port: Number(port) }, allowance);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(near: Socket, far: Socket): void {
    let left = this.#allowance();
    const end = () => {
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(from);
      from.on("data", (bytes) => {
        left -= bytes.length;
        if (left < 0) {
          this.broken += 1;
          to.resetAndDestroy();
          from.resetAndDestroy();
        } else if (!to.write(bytes)) {
          from.pause();
          to.once("drain", () => from.resume());
        }
      });
      from.on("error", end);
      from.on("close", () => {
        this.#sockets.delete(from);
        end();
      });
    }
  }
}
