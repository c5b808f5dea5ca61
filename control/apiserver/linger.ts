import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** A client that has an answer and goes on uploading is cut off after so long. */
const LINGER_MS = 5_000;

/**
 * Lets a client that was answered early finish its upload, for a while. One that has sent it all into the connection sends its next
 * call after it: what nobody reads would stand before that.
 */
export function linger(request: IncomingMessage): void {
  if (request.complete) return;
  const { socket } = request;
  // A reader that is about to leave stops the flow once more when it does; with a listener it goes on by itself.
  request.on("data", () => undefined);
  request.resume();
  const timer = setTimeout(() => request.complete || socket.destroy(), LINGER_MS);
  timer.unref();
  socket.once("close", () => clearTimeout(timer));
}

/**
 * Ends a connection that left HTTP, or never spoke it, after these last bytes. HTTP closes its connections; of this one nobody else
 * would notice that the client keeps its side open.
 */
export function endConnection(socket: Duplex, last = ""): void {
  socket.resume();
  socket.end(last, () => {
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
  });
}
