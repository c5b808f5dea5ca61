import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Backend, Handle } from "#core/backend.ts";
import { type EdgeId, newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type LayerDigest, type SandboxSpec } from "#core/sandbox.ts";
import type { BackendRig } from "#core/suites/backend-suite.ts";
import { hostBusybox } from "#images/bases/busybox.ts";
import { openLayerMounts } from "#images/layers/mounts.ts";
import { type LayerStore, openLayerStore } from "#images/store.ts";
import { LayerSupply } from "#images/supply.ts";
import { endAgent } from "../agents.ts";
import { type ContainerOptions, openContainerBackend } from "../backend.ts";
import type { ContainerConfig } from "../config.ts";
import { agentOf } from "../handle.ts";

const BUILD = join(import.meta.dirname, "../../../.build");

/** A layer that no store has. */
export const UNKNOWN_LAYER = `sha256:${"0".repeat(64)}` as LayerDigest;

/** A node's worth of directories with the host's busybox as the only image; its backend can be opened again and again. */
export class ContainerRig implements BackendRig {
  readonly root: string;
  readonly edge: EdgeId;
  readonly atOnce = 32;
  readonly options: ContainerOptions;
  readonly #store: LayerStore;
  readonly #layers: readonly LayerDigest[];
  #backend: Backend;

  constructor(
    parts: { root: string; options: ContainerOptions; store: LayerStore; layers: readonly LayerDigest[] },
    backend: Backend,
  ) {
    this.root = parts.root;
    this.edge = parts.options.edge;
    this.options = parts.options;
    this.#store = parts.store;
    this.#layers = parts.layers;
    this.#backend = backend;
  }

  get backend(): Backend {
    return this.#backend;
  }

  async restart(change: Partial<ContainerOptions> = {}): Promise<Backend> {
    await this.#backend[Symbol.asyncDispose]();
    this.#backend = await openContainerBackend({ ...this.options, ...change });
    return this.#backend;
  }

  spec(change: Partial<SandboxSpec> = {}): SandboxSpec {
    return {
      id: newSandboxId(this.edge),
      project: "test",
      backend: "container",
      layers: this.#layers,
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
    };
  }

  failingSpec(): SandboxSpec {
    // No check of `create` looks at the store.
    return this.spec({ layers: [...this.#layers, UNKNOWN_LAYER] });
  }

  async killAgent(handle: Handle): Promise<void> {
    const agent = agentOf(handle);
    if (agent !== undefined) await endAgent(agent);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const inventory = await this.#backend.inventory();
    const ids = new Set(Object.values(inventory).flatMap((found) => [...found]));
    for (const id of ids) await this.#backend.destroy(id as SandboxSpec["id"]);
    await this.#backend[Symbol.asyncDispose]();
    // Opened anew: other processes may have mounted some.
    (await openLayerMounts({ store: this.#store, runDir: this.options.runDir })).unmountAll();
    rmSync(this.root, { recursive: true });
  }
}

/** Small enough for tests. */
/** Settings of a node of tests; a test changes what it is about. */
export const TEST_CONFIG: ContainerConfig = {
  firstUid: 0x0800_0000,
  volumeSize: 1024,
  shmSize: 16,
  ownView: true,
  spreadProcessors: true,
  blanks: 0,
};

/** Makes a rig; `.build/` must hold the launcher and the agent. */
export async function containerRig(change: Partial<ContainerOptions> = {}): Promise<ContainerRig> {
  const root = mkdtempSync(join(tmpdir(), "dsec-container-"));
  const [dataDir, runDir] = [join(root, "data"), join(root, "run")];
  const store: LayerStore = await openLayerStore(join(root, "store"));
  const { layers } = await hostBusybox(store);
  const mounts = await openLayerMounts({ store, runDir });
  const options: ContainerOptions = {
    edge: parseEdgeId(`t${randomBytes(4).toString("hex")}`),
    dataDir,
    runDir,
    binaries: {
      cradle: join(BUILD, "dsec-cradle"),
      agent: join(BUILD, "dsec-agent"),
      view: join(BUILD, "dsec-view"),
      shell: "/bin/bash-static",
    },
    store,
    supply: new LayerSupply(store, undefined),
    mounts,
    config: TEST_CONFIG,
    log: (line) => console.error(line),
    ...change,
  };
  try {
    return new ContainerRig({ root, options, store, layers }, await openContainerBackend(options));
  } catch (error) {
    rmSync(root, { recursive: true });
    throw error;
  }
}
