import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Backend, Handle } from "#core/backend.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type LayerDigest, type SandboxSpec } from "#core/sandbox.ts";
import type { BackendRig } from "#core/suites/backend-suite.ts";
import { processOf } from "#host/vmm/handle.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import { hostBusybox } from "#images/bases/busybox.ts";
import { openLayerMounts } from "#images/layers/mounts.ts";
import { openLayerStore } from "#images/store.ts";
import { LayerSupply } from "#images/supply.ts";
import { type MicrovmOptions, openMicrovmBackend } from "../backend.ts";

const BUILD = join(import.meta.dirname, "../../../.build");
const BINARIES = {
  cradle: join(BUILD, "dsec-cradle"),
  agent: join(BUILD, "dsec-agent"),
  lender: join(BUILD, "dsec-lend.so"),
  shell: "/bin/bash-static",
};
const UNKNOWN_LAYER = `sha256:${"0".repeat(64)}` as LayerDigest;

/** A rig that says where the files of a sandbox are. */
export interface MicrovmRig extends BackendRig {
  /** Of its disk, and of what is saved beside it. */
  diskDir(id: string): string;
  /** Of its monitor's sockets. */
  runDir(id: string): string;
}

/** A node's worth of directories with the host's busybox as the only image. Kernel and templates are kept for the next rig. */
export async function microvmRig(): Promise<MicrovmRig> {
  const root = mkdtempSync(join(tmpdir(), "dsec-vm-"));
  const edge = parseEdgeId(`t${randomBytes(4).toString("hex")}`);
  const store = await openLayerStore(join(root, "store"));
  const { layers } = await hostBusybox(store);
  const mounts = await openLayerMounts({ store, runDir: join(root, "run") });
  const options: MicrovmOptions = {
    ...{ edge, store },
    ...{ dataDir: join(root, "data"), runDir: join(root, "run") },
    binaries: BINARIES,
    supply: new LayerSupply(store, undefined),
    mounts,
    firstUid: 0x0800_0000,
    config: { accelerator: "tcg", guestDir: join(BUILD, "guest"), machineLayers: "shared", machineVolumeSize: 1024 },
    log: (line) => console.error(line),
  };
  const spec = (change: Partial<SandboxSpec> = {}): SandboxSpec => ({
    id: newSandboxId(edge),
    project: "test",
    backend: "microvm",
    layers,
    config: { env: {}, user: undefined, workdir: undefined },
    hostname: "sandbox",
    env: {},
    user: "root",
    workdir: "/",
    resources: { ...DEFAULT_RESOURCES, memoryMiB: 64, diskMiB: 16 },
    rlimits: {},
    lifetime: { idleTimeoutMs: undefined, maxLifetimeMs: undefined },
    labels: {},
    origin: { base: "host-busybox", workspace: undefined, toolkits: [] },
    ...change,
  });
  let backend = openMicrovmBackend(options);
  return {
    get backend() {
      return backend;
    },
    atOnce: 4,
    async restart() {
      await backend[Symbol.asyncDispose]();
      backend = openMicrovmBackend(options);
      return backend;
    },
    spec,
    // No check of `create` looks at the store.
    failingSpec: () => spec({ layers: [...layers, UNKNOWN_LAYER] }),
    killAgent,
    diskDir: (id) => join(root, "run", "machine-disks", "volume", id, "upper"),
    runDir: (id) => join(root, "run", "machines", id),
    async [Symbol.asyncDispose]() {
      await removeAll(backend);
      await backend[Symbol.asyncDispose]();
      mounts.unmountAll();
      store[Symbol.dispose]();
      rmSync(root, { recursive: true });
    },
  };
}

/** Ends the monitor: the agent goes with it. */
async function killAgent(handle: Handle): Promise<void> {
  const monitor = processOf(handle);
  if (monitor === undefined) return;
  process.kill(monitor.pid, "SIGKILL");
  while (isAlive(monitor)) await delay(5);
}

async function removeAll(backend: Backend): Promise<void> {
  const ids = new Set(Object.values(await backend.inventory()).flatMap((found) => [...found]));
  for (const id of ids) await backend.destroy(id as SandboxSpec["id"]);
}
