import { fstatSync, writeSync } from "node:fs";
import { errorText } from "#cli/main.ts";
import { loadNodeConfig } from "./config.ts";
import { serveNode } from "./serve-node.ts";

/** Whoever starts a node in the background gives it a socket here, and hears `ready` on it once the node answers. */
const READY_FD = 3;

function sayReady(): void {
  try {
    // Anything else under this number belongs to Node itself.
    if (fstatSync(READY_FD).isSocket()) writeSync(READY_FD, "ready\n");
  } catch {
    // Nobody listens: started by hand, or the starter has given up.
  }
}

try {
  await serveNode(loadNodeConfig(process.argv.slice(2), process.env), sayReady);
  process.exit(0);
} catch (error) {
  process.stderr.write(errorText(error));
  if (error instanceof Error) process.stderr.write(`${error.stack}\n`);
  process.exit(125);
}
