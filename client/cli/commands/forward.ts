import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Connection, Sandbox } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, print, printable } from "../io.ts";

/** Where forwarded ports listen: on this machine alone. */
const HOST = "127.0.0.1";

/** One port of this machine and the port of the sandbox that stands behind it. `local` 0: one that is free. */
interface Forward {
  readonly local: number;
  readonly remote: number;
}

/** Makes ports of a sandbox ports of this machine, until the person leaves: then every connection is cut. */
export async function forward(context: CliContext, id: string, words: readonly string[]): Promise<number> {
  const forwards = words.map(readForward);
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  using interrupts = new Interrupts(context.io);
  const { signal } = interrupts;
  await sandbox.info({ signal });
  const sockets = new Set<Socket>();
  const servers: Server[] = [];
  try {
    for (const { local, remote } of forwards) {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket));
        void serve(context, sandbox, { socket, remote, signal });
      });
      servers.push(server);
      const port = await listen(server, local);
      const shown = { local: { host: HOST, port }, sandbox: id, port: remote };
      print(context, shown, () => `${HOST}:${port} -> ${printable(id)}:${remote}\n`);
    }
    if (!signal.aborted) await once(signal, "abort");
  } finally {
    for (const server of servers) server.close();
    for (const socket of sockets) socket.destroy();
  }
  return 0;
}

/** `8080:80`, `:80` and `0:80` for a free one, `80` for the same on both sides. */
function readForward(word: string): Forward {
  const match = /^(?:(\d{0,5}):)?(\d{1,5})$/.exec(word);
  const remote = Number(match?.[2]);
  const local = match?.[1] === undefined ? remote : Number(match[1]);
  if (match !== null && remote >= 1 && remote <= 65_535 && local <= 65_535) return { local, remote };
  throw new CliError("InvalidArgument", `${JSON.stringify(word)} is not LOCAL:PORT`, {
    hint: "8080:80 leads from port 8080 of this machine to port 80 of the sandbox; :80 takes a free one",
  });
}

async function listen(server: Server, port: number): Promise<number> {
  try {
    server.listen({ port, host: HOST });
    await once(server, "listening");
    // A server on TCP has an address of this form.
    return (server.address() as AddressInfo).port;
  } catch (error) {
    if (!hasCode(error, "EADDRINUSE", "EACCES")) throw error;
    const why = hasCode(error, "EADDRINUSE") ? "is in use" : "may not be taken";
    throw new CliError("FailedPrecondition", `port ${port} of this machine ${why}`, {
      cause: error,
      hint: "name another one, or none for one that is free: dsec forward ID :80",
    });
  }
}

/** One connection, to its end. Never rejects: what goes wrong is told, and breaks this connection alone. */
async function serve(
  { io }: CliContext,
  sandbox: Sandbox,
  { socket, remote, signal }: { readonly socket: Socket; readonly remote: number; readonly signal: AbortSignal },
): Promise<void> {
  socket.on("error", () => undefined);
  try {
    using connection = await sandbox.ports.connect(remote, { signal });
    await Promise.all([sendAll(socket, connection), receiveAll(connection, socket)]);
  } catch (error) {
    socket.resetAndDestroy();
    const reason = error instanceof Error ? error.message : String(error);
    if (!signal.aborted) io.stderr.write(`dsec: port ${remote}: ${printable(reason)}\n`);
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
