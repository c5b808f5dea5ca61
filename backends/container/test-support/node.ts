import { parseSandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { openLayerMounts } from "#images/layers/mounts.ts";
import { openLayerStore } from "#images/store.ts";
import { LayerSupply } from "#images/supply.ts";
import { type ContainerOptions, openContainerBackend } from "../backend.ts";

/**
 * A node's process for tests that kill one: opens the backend that its argument describes, makes the sandboxes, prints each
 * handle as a line, and waits to be killed.
 */
interface Task {
  readonly options: Omit<ContainerOptions, "supply" | "mounts" | "log">;
  readonly storeDir: string;
  readonly specs: readonly SandboxSpec[];
}

const task: Task = JSON.parse(process.argv[2] ?? "");
const store = await openLayerStore(task.storeDir);
const mounts = await openLayerMounts({ store, runDir: task.options.runDir });
const supply = new LayerSupply(store, undefined);
const backend = await openContainerBackend({ ...task.options, store, supply, mounts, log: console.error });
await Promise.all(
  task.specs.map(async (spec, slot) => {
    parseSandboxId(spec.id);
    const handle = await backend.create(spec, { slot }, AbortSignal.timeout(30_000));
    console.log(JSON.stringify(handle));
  }),
);
setInterval(() => {}, 1 << 30);
