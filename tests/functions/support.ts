import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestNode } from "../support/node.ts";

/** A runtime of the host's busybox: made in a second, without a network. */
export async function addShell(node: TestNode): Promise<void> {
  await node.client.artifacts.build({ name: "busybox", suite: "host-busybox" });
  addRuntime(node, "sh", { base: "busybox", source: "main.sh", run: ["sh", "main.sh"] });
}

/** Puts a runtime where an operator would. */
export function addRuntime(node: TestNode, name: string, manifest: object): void {
  const folder = join(node.dataDir, "runtimes", name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "runtime.json"), JSON.stringify(manifest));
}
