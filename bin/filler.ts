import { setPriority } from "node:os";
import { toWire } from "#core/errors.ts";
import { CHANNEL_FD, channelPaths } from "#host/lazy/channel.ts";
import type { FillerMessage } from "#host/lazy/filler.ts";
import type { LazyCall, LazySetup } from "#images/lazy/filler-calls.ts";
import { type LazyBlobs, openLazyBlobs, TICK_MS } from "#images/lazy/lazy-blobs.ts";
import { openObjectStore } from "#images/store/open.ts";

/** Fills the lazy files of a node. It is started by the node, ends by a signal, and goes on when the node has ended. */

/** Every sandbox that reads waits for this process. */
const PRIORITY = -10;

/** What a node tells its filler: what to do first, and whether it is alive, and calls. */
type Told = { readonly setup: LazySetup } | { readonly alive: true } | { readonly id: number; readonly call: LazyCall };

const { promise: opened, resolve: open } = Promise.withResolvers<LazyBlobs>();

/**
 * A filler that cannot go on ends: the node starts another, and readers wait so long. By a signal: an orderly end would wait for the
 * thread that waits in the kernel.
 */
function fail(error: unknown): void {
  console.error(error);
  process.kill(process.pid, "SIGKILL");
}

async function start(setup: LazySetup): Promise<void> {
  const { hand, files } = channelPaths(setup.runDir);
  const blobs = await openLazyBlobs({
    ...setup,
    descriptor: CHANNEL_FD,
    hand,
    filesDir: files,
    store: openObjectStore(setup.store.place, setup.store.credentials),
    onEvent: (event) => say({ event }),
    onFailure: fail,
  });
  blobs.start(setup.held);
  open(blobs);
  for (;;) {
    await blobs.tick();
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
}

async function answer(id: number, call: LazyCall): Promise<void> {
  try {
    say({ answer: id, result: await resultOf(await opened, call) });
  } catch (error) {
    say({ answer: id, error: toWire(error) });
  }
}

function resultOf(blobs: LazyBlobs, call: LazyCall): unknown {
  switch (call.call) {
    case "acquire":
      return blobs.acquire(call.blob);
    case "release":
      blobs.release(call.blob);
      return null;
    case "report":
      return blobs.report(call.blobs);
  }
}

/** Nobody hears it when the node is gone. */
function say(message: FillerMessage): void {
  if (process.connected) process.send?.(message, () => undefined);
}

// Of this thread, and of those that it begins.
setPriority(PRIORITY);
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
// A node that ended before it said what to do will not.
const leave = () => process.exit(0);
process.on("disconnect", leave);
process.on("message", (message: Told) => {
  if ("alive" in message) {
    say({ alive: true });
    return;
  }
  if ("call" in message) {
    void answer(message.id, message.call);
    return;
  }
  process.off("disconnect", leave);
  start(message.setup).catch(fail);
});
// Whoever opens a file that is about to leave the cache asks for it by this signal.
process.on("SIGIO", () => undefined);
