import { connect, type Socket } from "node:net";
import { SandboxError } from "#core/errors.ts";
import type { PortPiece } from "#core/ports.ts";

/** A node's `openPort` over the ports of this machine: what the agent does in a sandbox, for tests of what goes through it. */
export async function* bridgePort(
  port: number,
  incoming: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<PortPiece, void, undefined> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
  const leave = () => socket.resetAndDestroy();
  signal.addEventListener("abort", leave, { once: true });
  try {
    await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    yield "open";
    const sent = send(socket, incoming);
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) yield chunk as Buffer;
    yield "end";
    await sent;
  } catch (error) {
    throw new SandboxError("PortFailed", "the port failed", { cause: error });
  } finally {
    signal.removeEventListener("abort", leave);
    if (!socket.writableFinished || !socket.readableEnded) socket.resetAndDestroy();
  }
}

async function send(socket: Socket, incoming: AsyncIterable<Uint8Array>): Promise<void> {
  try {
    for await (const chunk of incoming) {
      if (!socket.write(chunk)) await new Promise((resolve) => socket.once("drain", resolve).once("close", resolve));
    }
    await new Promise<void>((resolve) => socket.end(resolve));
  } catch {
    socket.resetAndDestroy();
  }
}
