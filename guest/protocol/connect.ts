import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import { AgentLink, connectionLost } from "./link.ts";

/** Where all links receive, one at a time: nothing of it is kept when a read has been handled. */
const RECEIVED = Buffer.allocUnsafeSlow(256 * 1024);

/**
 * Reaches the agent that listens at `path`. Rejects with `SandboxLost` when nobody does, with `FailedPrecondition` when it
 * speaks another version, with the signal's reason when that fires first.
 */
export async function connectUnix(path: string, signal: AbortSignal): Promise<GuestLink> {
  signal.throwIfAborted();
  // Frames are taken apart where they arrive: a buffer a read would be most of what there is to collect in a fast stream.
  let receive: (bytes: Buffer) => void = () => undefined;
  const socket = connect({
    path,
    onread: {
      buffer: () => RECEIVED,
      callback: (size) => {
        receive(RECEIVED.subarray(0, size));
        return true;
      },
    },
  });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
  } catch (error) {
    socket.destroy();
    if (hasCode(error, "ENOENT", "ECONNREFUSED")) {
      throw new SandboxError("SandboxLost", "no agent listens for the sandbox", { cause: error });
    }
    throw new SandboxError("Unavailable", "the agent cannot be reached", { cause: error });
  }
  return greet(socket, signal, (to) => {
    receive = to;
  });
}

/** Speaks the protocol over any byte stream to an agent. Owns the stream from here on, also when it rejects. */
export function openLink(stream: Duplex, signal: AbortSignal): Promise<GuestLink> {
  return greet(stream, signal, (receive) => stream.on("data", receive));
}

/** `listen` is told who takes the bytes that arrive; they are taken before the call of it returns. */
function greet(
  stream: Duplex,
  signal: AbortSignal,
  listen: (receive: (bytes: Buffer) => void) => void,
): Promise<GuestLink> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      stream.destroy();
      reject(signal.reason);
    };
    const settled = (): void => signal.removeEventListener("abort", abort);
    const link = new AgentLink(stream, (greeted) => {
      settled();
      resolve(greeted);
    });
    listen((bytes) => link.receive(bytes));
    void link.closed.then(() => {
      settled();
      reject(link.failure ?? connectionLost());
    });
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}
