import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DsecError, type Sandbox } from "#sdk";
import { create, startNodeWithBase } from "../../support/sandbox.ts";
import type { ContractBackend } from "../backend.ts";

/** Kept for the next run: a kernel, and templates. */
const GUEST_DIR = join(import.meta.dirname, "../../../.build/guest");
const WORDS = ["--accelerator=tcg", `--guest-dir=${GUEST_DIR}`];

/** Machines over the busybox base, run in software: what every host can do. */
export const MICROVM: ContractBackend = {
  name: "microVM",
  async startNode(options = {}) {
    const node = await startNodeWithBase({ ...options, words: [...WORDS, ...(options.words ?? [])] });
    await (await MICROVM.create(node)).remove();
    return node;
  },
  create: (node, request = {}) => booted(() => create(node, { backend: "microvm", ...request })),
  settle: "sync",
  uncounted: new Set(["io", "network"]),
  async crash(node, { id }) {
    const monitor = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
    process.kill(monitor.pid, "SIGKILL");
  },
};

const MOST_BOOTS = 5;

/** The first machine of a kind boots it, which may take a busy host longer than a create may take. The template comes into being all the same. */
async function booted(make: () => Promise<Sandbox>): Promise<Sandbox> {
  for (let boots = 1; ; boots++) {
    try {
      return await make();
    } catch (error) {
      if (boots === MOST_BOOTS || !(error instanceof DsecError && error.kind === "DeadlineExceeded")) throw error;
    }
  }
}
