import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { CreateSandbox, Sandbox } from "#sdk";
import { startNode, type TestNode } from "../../support/node.ts";
import { output } from "../../support/sandbox.ts";
import { waitUntil } from "../../support/wait.ts";
import type { ContractBackend } from "../backend.ts";

/** Kept for the next run: a kernel. */
const GUEST_DIR = join(import.meta.dirname, "../../../.build/guest");
const WORDS = ["--accelerator=tcg", `--guest-dir=${GUEST_DIR}`];
const IMAGE = "busybox-system";
const START_MS = 600_000;
/** As much as any sandbox of the contract asks for, but for one. */
const USUAL = { memoryMiB: 512, cpus: 2 } as const;
/** Of each node: a computer that has started, which others are copies of. */
const SEEDS = new WeakMap<TestNode, Sandbox>();

/**
 * Full VMs whose system is busybox with the agent, run in software: what every host can do. A system is started once for each node; sandboxes are
 * copies of it, which is a matter of a moment. Limits that its own system decides about are not asked for, and a limit of the disk is what is left free of it.
 */
export const FULLVM: ContractBackend = {
  name: "full VM",
  isWholeMachine: true,
  async startNode(options = {}) {
    const node = await startNode({ ...options, words: [...WORDS, ...(options.words ?? [])] });
    try {
      await node.client.artifacts.build({ name: IMAGE, kind: "vm-image", suite: "host-busybox" });
      SEEDS.set(node, await booted(node, {}));
      return node;
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
  },
  async create(node, { resources, ...request } = {}) {
    const { memoryMiB = 0, cpus = 0 } = resources ?? {};
    const isUsual = memoryMiB <= USUAL.memoryMiB && cpus <= USUAL.cpus;
    const { labels, ...others } = request;
    if (!isUsual || Object.keys(others).length > 0) {
      return await booted(node, { ...request, resources: { ...USUAL, ...(memoryMiB > 0 && { memoryMiB }) } });
    }
    const seed = SEEDS.get(node);
    if (seed === undefined) throw new Error("a node that this backend did not start");
    const { forks } = await node.client.sandboxes.use(seed.id).fork({ count: 1, ...(labels && { labels }) });
    const [made] = forks;
    if (made === undefined || !("sandbox" in made)) throw made?.error ?? new Error("a fork of none");
    if (resources?.diskMiB !== undefined) await fill(made.sandbox, resources.diskMiB);
    return made.sandbox;
  },
  async crash(node, { id }) {
    const monitor = JSON.parse(readFileSync(join(node.runDir, "computers", id, "vmm.json"), "utf8")) as { pid: number };
    process.kill(monitor.pid, "SIGKILL");
  },
};

/** Takes what the disk of its image has beyond so much: no disk is smaller than its image. */
async function fill(sandbox: Sandbox, roomMiB: number): Promise<void> {
  const free = Number(await output(sandbox, "df -m / | awk 'NR == 2 { print $4 }'"));
  if (free > roomMiB)
    await output(sandbox, `dd if=/dev/zero of=/.filled bs=1M count=${free - roomMiB} 2>/dev/null; sync`);
}

async function booted(node: TestNode, request: Partial<CreateSandbox>): Promise<Sandbox> {
  const sandbox = await node.client.sandboxes.create({ base: IMAGE, resources: USUAL, ...request });
  await waitUntil("its system answers", START_MS, () =>
    sandbox.run("true").then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  return sandbox;
}
