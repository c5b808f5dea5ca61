import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create, startNodeWithBase } from "../../support/sandbox.ts";
import type { ContractBackend } from "../backend.ts";

/** Kept for the next run: a kernel, and templates. */
const GUEST_DIR = join(import.meta.dirname, "../../../.build/guest");
const WORDS = ["--accelerator=tcg", `--guest-dir=${GUEST_DIR}`];

/** Machines over the busybox base, run in software: what every host can do. */
export const MICROVM: ContractBackend = {
  name: "microVM",
  startNode: (options = {}) => startNodeWithBase({ ...options, words: [...WORDS, ...(options.words ?? [])] }),
  create: (node, request = {}) => create(node, { backend: "microvm", ...request }),
  async crash(node, { id }) {
    const monitor = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
    process.kill(monitor.pid, "SIGKILL");
  },
};
