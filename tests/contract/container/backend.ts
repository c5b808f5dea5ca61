import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create, startNodeWithBase } from "../../support/sandbox.ts";
import type { ContractBackend } from "../backend.ts";

/** Containers over the busybox base. */
export const CONTAINER: ContractBackend = {
  name: "container",
  startNode: startNodeWithBase,
  create: (node, request = {}) => create(node, { backend: "container", ...request }),
  async crash(node, { id }) {
    const agent = JSON.parse(readFileSync(join(node.runDir, "sandboxes", id, "agent.json"), "utf8")) as { pid: number };
    process.kill(agent.pid, "SIGKILL");
  },
};
