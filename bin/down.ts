import { SandboxError } from "#core/errors.ts";
import { flag } from "#core/setting-kinds.ts";
import { defineSettings } from "#core/settings.ts";
import type { Places } from "./config.ts";
import { readNodeRecord, startTicksOf } from "./node-record.ts";
import { KEEP_SIGNAL, REMOVE_SIGNAL } from "./stop-signals.ts";

const loadWords = defineSettings("DSEC_DOWN", {
  keep: flag(false, "Leave the sandboxes alive for the next node."),
  json: flag(false, "What was stopped as JSON."),
});

/** Removing thousands of sandboxes takes a while. */
const STOP_TIMEOUT_MS = 120_000;
const LOOK_EVERY_MS = 20;

/** Stops this machine's node and waits until it is gone. Success when there is none. */
export async function down(
  argv: readonly string[],
  places: Places,
  to: { say(line: string): void; readonly stdout: NodeJS.WritableStream },
): Promise<number> {
  const { keep, json } = loadWords({ argv });
  const node = readNodeRecord(places);
  if (node !== undefined) await stop(node, keep);
  if (json) to.stdout.write(`${JSON.stringify({ stopped: node !== undefined, sandboxesKept: keep })}\n`);
  else if (node === undefined) to.say("no node runs on this machine");
  else to.say(keep ? "the node has stopped; its sandboxes live on" : "the node has stopped");
  return 0;
}

async function stop(node: NonNullable<ReturnType<typeof readNodeRecord>>, keep: boolean): Promise<void> {
  signal(node.pid, keep ? KEEP_SIGNAL : REMOVE_SIGNAL);
  for (const end = Date.now() + STOP_TIMEOUT_MS; startTicksOf(node.pid) === node.startTicks; ) {
    if (Date.now() > end) {
      throw new SandboxError(
        "DeadlineExceeded",
        `node process ${node.pid} is still there after ${STOP_TIMEOUT_MS / 1000} s`,
        {
          hint: "look at its log; killed, the next node cleans up after it",
        },
      );
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    throw new SandboxError("PermissionDenied", `node process ${pid} cannot be signalled`, {
      cause: error,
      hint: "run as root",
    });
  }
}
