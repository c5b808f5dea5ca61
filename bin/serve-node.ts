import { SandboxError } from "#core/errors.ts";
import type { NodeConfig } from "./config.ts";
import { makePlaces } from "./make-places.ts";
import { removeNodeRecord, writeNodeRecord } from "./node-record.ts";
import { openNode } from "./open-node.ts";
import { KEEP_SIGNAL, REMOVE_SIGNAL } from "./stop-signals.ts";

/**
 * Runs a node in this process until a signal stops it, then closes it: its sandboxes are removed, or kept for the next node
 * when the signal says so. `announce` is called once it answers.
 */
export async function serveNode(config: NodeConfig, announce: (url: string) => void): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new SandboxError("PermissionDenied", "a node needs root", { hint: "sudo dsec up" });
  }
  // Listening from the first moment: a signal during the start must not leave mounts behind.
  const stopped = stopSignal();
  makePlaces(config);
  const node = await openNode(config);
  let keepSandboxes = false;
  try {
    writeNodeRecord(config, node.url);
    announce(node.url);
    keepSandboxes = (await stopped) === KEEP_SIGNAL;
  } finally {
    removeNodeRecord(config);
    await node.close({ keepSandboxes });
  }
}

/** Resolves with the first signal that asks to stop. Later ones change nothing: closing is under way and bounded. */
function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const name of [REMOVE_SIGNAL, KEEP_SIGNAL, "SIGINT", "SIGHUP"] as const) process.on(name, resolve);
  });
}
