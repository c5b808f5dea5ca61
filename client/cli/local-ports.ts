import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Connection } from "#sdk";
import { CliError, hasCode } from "./cli-error.ts";
import { Interrupts } from "./interrupts.ts";
import { type CliContext, printable } from "./io.ts";

/** Where they listen: on this machine alone. */
export const LOCAL_HOST = "127.0.0.1";

/** A port of this machine and what stands behind it. */
export interface LocalPort {
  /** 0: one that is free. */
  readonly local: number;
  /** Of what stands behind it, for messages. */
  readonly name: string;
  connect(signal: AbortSignal): Promise<Connection>;
  /** Told once it listens. */
  listening(port: number): void;
}

/** Leads connections to ports of this machine elsewhere, until the person leaves: then every connection is cut. `first` is awaited before. */
export async function servePorts(
  context: CliContext,
  ports: readonly LocalPort[],
  first: (signal: AbortSignal) => Promise<unknown>,
): Promise<void> {
  using interrupts = new Interrupts(context.io);
  const { signal } = interrupts;
  await first(signal);
  const sockets = new Set<Socket>();
  const servers: Server[] = [];
  try {
    for (const port of ports) {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket));
        void serve(context, port, { socket, signal });
      });
      servers.push(server);
      port.listening(await listen(server, port.local));
    }
    if (!signal.aborted) await once(signal, "abort");
  } finally {
    for (const server of servers) server.close();
    for (const socket of sockets) socket.destroy();
  }
}

async function listen(server: Server, port: number): Promise<number> {
  try {
    server.listen({ port, host: LOCAL_HOST });
    await once(server, "listening");
    // A server on TCP has an address of this form.
    return (server.address() as AddressInfo).port;
  } catch (error) {
    if (!hasCode(error, "EADDRINUSE", "EACCES")) throw error;
    const why = hasCode(error, "EADDRINUSE") ? "is in use" : "may not be taken";
    throw new CliError("FailedPrecondition", `port ${port} of this machine ${why}`, {
      cause: error,
      hint: "name another one, or none for one that is free",
    });
  }
}

/** One connection, to its end. Never rejects: what goes wrong is told, and breaks this connection alone. */
async function serve(
  { io }: CliContext,
  port: LocalPort,
  { socket, signal }: { readonly socket: Socket; readonly signal: AbortSignal },
): Promise<void> {
  socket.on("error", () => undefined);
  try {
    using connection = await port.connect(signal);
    await Promise.all([sendAll(socket, connection), receiveAll(connection, socket)]);
  } catch (error) {
    socket.resetAndDestroy();
    const reason = error instanceof Error ? error.message : String(error);
    if (!signal.aborted) io.stderr.write(`dsec: ${port.name}: ${printable(reason)}\n`);
  }
}

async function sendAll(socket: Socket, connection: Connection): Promise<void> {
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) await connection.write(chunk as Buffer);
  connection.end();
}

async function receiveAll(connection: Connection, socket: Socket): Promise<void> {
  for await (const bytes of connection) {
    const error = await new Promise<Error | null | undefined>((resolve) => socket.write(bytes, resolve));
    if (error) throw error;
  }
  socket.end();
}
