import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import type { Backend, Handle, Inventory, Place } from "#core/backend.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { EdgeId, SandboxId } from "#core/ids.ts";
import type { LayerDigest, SandboxSpec } from "#core/sandbox.ts";
import type { Usage } from "#core/usage.ts";
import { connectUnix } from "#guest/protocol/connect.ts";
import { loadSandboxProfile } from "#host/apparmor/apparmor.ts";
import { type Cgroups, openCgroups } from "#host/cgroup/cgroups.ts";
import { OomLog } from "#host/cgroup/oom-log.ts";
import type { CradleRequest } from "#host/cradle/client.ts";
import { readHardLimits } from "#host/cradle/rlimits.ts";
import { checkIdRanges } from "#host/id-ranges.ts";
import { networkOf, processIo } from "#host/sys/counters.ts";
import { bootTicks, processStartTicks } from "#host/sys/process.ts";
import { openView } from "#host/view/server.ts";
import { openVolume, type Upper, type Volume } from "#host/volume/volume.ts";
import type { LayerMounts } from "#images/layers/mounts.ts";
import type { LayerStore } from "#images/store.ts";
import type { LayerSupply } from "#images/supply.ts";
import { awaitEarlierLauncher, endAgent, findAgents } from "./agents.ts";
import { type Blank, Blanks } from "./blanks.ts";
import { checkSpec, diskLimitBytes, type Enforcement, HELPER_PIDS, limitsOf } from "./check.ts";
import type { ContainerConfig } from "./config.ts";
import { type AgentProcess, type AgentRecord, agentOf, handleOf, isAlive, layersOf } from "./handle.ts";
import { FOOTPRINT, takeInventory } from "./inventory.ts";
import { Launcher } from "./launcher.ts";
import { ContainerPacking } from "./packing.ts";
import { explainRefusal } from "./probe.ts";
import { openProcessors, type Processors, processorList } from "./processors.ts";
import { blankRequest, launchRequest } from "./request.ts";
import { RunDirs } from "./run-dirs.ts";

/** What one node's containers are made of and where. */
export interface ContainerOptions {
  readonly edge: EdgeId;
  readonly dataDir: string;
  readonly runDir: string;
  /** The launcher and the agent as they were built. */
  readonly binaries: { readonly cradle: string; readonly agent: string; readonly view: string; readonly shell: string };
  readonly store: LayerStore;
  readonly supply: Pick<LayerSupply, "metadata">;
  readonly mounts: Pick<LayerMounts, "acquire" | "lost"> & { readonly mounted: { has(digest: LayerDigest): boolean } };
  readonly config: ContainerConfig;
  /** Gets what people should know: a line without its end. */
  readonly log: (line: string) => void;
}

/**
 * Containers: a launcher that makes them, cgroups that bound them, a volume for what they write. Rejects with
 * `FailedPrecondition` when this host cannot run them. Disposing ends the launcher and leaves sandboxes alive.
 */
export async function openContainerBackend(options: ContainerOptions): Promise<Backend> {
  checkIdRanges(options.config.firstUid);
  try {
    return await openParts(options);
  } catch (error) {
    throw await explainRefusal(error, options.dataDir);
  }
}

async function openParts(options: ContainerOptions): Promise<Backend> {
  const runDirs = new RunDirs(options.runDir);
  await using opened = new AsyncDisposableStack();
  const volume = opened.use(
    await openVolume({ dataDir: options.dataDir, runDir: options.runDir, sizeMiB: options.config.volumeSize }),
  );
  if (volume.reason !== undefined) options.log(`disk limits are refused: ${volume.reason}`);
  const cgroups = opened.use(await openCgroups(options.edge));
  // A node that was killed in the middle of a pack left its sandbox held still.
  for (const id of cgroups.list()) cgroups.thaw(id);
  const { profile, reason } = await loadSandboxProfile();
  if (reason !== undefined) options.log(`AppArmor confines no sandbox: ${reason}`);
  await awaitEarlierLauncher(cgroups);
  const { binaries, config, log } = options;
  const view = config.ownView ? opened.use(await openView(viewOptions(options, cgroups, runDirs))).path : undefined;
  const shell = existsSync(binaries.shell) ? binaries.shell : undefined;
  if (shell === undefined) log(`there are no sessions: ${binaries.shell} does not exist`);
  const programs = { binary: binaries.cradle, agentBinary: binaries.agent, shell };
  const launcher = opened.use(await Launcher.open({ ...programs, view, log }));
  const processors = openProcessors(runDirs);
  const blanks = opened.use(
    await Blanks.open({
      dir: join(options.runDir, "blanks"),
      request: (slot) => blankRequest({ slot }, cgroups.agentDirs, config),
      launcher,
      volume,
      most: config.blanks,
      busyAt: availableParallelism(),
      log,
    }),
  );
  const oomLog = opened.use(new OomLog(options.edge));
  const parts = { volume, cgroups, launcher, runDirs, processors, blanks, profile, oomLog };
  return new ContainerBackend(options, parts, opened.move());
}

function viewOptions({ binaries, edge, runDir, log }: ContainerOptions, cgroups: Cgroups, runDirs: RunDirs) {
  return {
    binary: binaries.view,
    runDir,
    sandboxesDir: runDirs.root,
    node: edge,
    trees: cgroups.trees,
    cgroups: cgroups.agentDirs,
    isInUse: () => runDirs.list().size > 0,
    log,
  };
}

interface Parts {
  readonly volume: Volume;
  readonly cgroups: Cgroups;
  readonly launcher: Launcher;
  readonly runDirs: RunDirs;
  readonly processors: Processors;
  readonly blanks: Blanks;
  /** AppArmor profile of what runs in sandboxes. */
  readonly profile: string | undefined;
  readonly oomLog: OomLog;
}

class ContainerBackend implements Backend {
  readonly kind = "container";
  readonly footprint = FOOTPRINT;
  readonly packing: ContainerPacking;
  readonly copying: ContainerPacking;
  readonly #options: ContainerOptions;
  readonly #parts: Parts;
  readonly #enforcement: Enforcement;
  readonly #opened: AsyncDisposableStack;
  /** Links to agents that were reached as blanks, until somebody connects. */
  readonly #links = new Map<SandboxId, GuestLink>();

  constructor(options: ContainerOptions, parts: Parts, opened: AsyncDisposableStack) {
    this.#options = options;
    this.#parts = parts;
    this.#enforcement = { ...parts, hardLimits: readHardLimits() };
    this.#opened = opened;
    this.packing = new ContainerPacking({ ...parts, store: options.store });
    this.copying = this.packing;
  }

  get foresight(): number {
    return this.#options.config.blanks;
  }

  expect(places: readonly Place[]): void {
    this.#parts.blanks.expect(places.map(({ slot }) => slot));
  }

  async check(spec: SandboxSpec): Promise<void> {
    checkSpec(spec, this.#enforcement);
    // What is mounted is there, and needs no look at the disk.
    const layers = spec.layers.filter((digest) => !this.#options.mounts.mounted.has(digest));
    if (layers.length > 0) await this.#options.supply.metadata(layers);
  }

  async create(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    signal.throwIfAborted();
    checkSpec(spec, this.#enforcement);
    const { runDirs, blanks } = this.#parts;
    using _busy = blanks.creating(place.slot);
    if (!runDirs.make(spec.id)) {
      const earlier = await this.#earlier(spec);
      if (earlier !== undefined) return earlier;
    }
    try {
      const agent = await this.#launch(spec, place, signal);
      // Before anybody can run a command: what the sandbox sees comes from it.
      runDirs.writeAgent(spec.id, agent);
      signal.throwIfAborted();
      return handleOf(spec.id, agent, spec.layers);
    } catch (error) {
      await this.destroy(spec.id);
      throw error;
    }
  }

  async connect(handle: Handle, signal: AbortSignal): Promise<GuestLink> {
    const link = this.#links.get(handle.id);
    this.#links.delete(handle.id);
    if (link !== undefined) return link;
    const agent = agentOf(handle);
    if (agent === undefined || !isAlive(agent)) throw lost(handle.id);
    try {
      return await connectUnix(this.#parts.runDirs.socketPath(handle.id), signal);
    } catch (error) {
      if (isAlive(agent) || signal.aborted) throw error;
      throw lost(handle.id, error);
    }
  }

  async recover(handle: Handle): Promise<Handle | undefined> {
    for (const layer of this.#options.mounts.lost) {
      if (layersOf(handle).includes(layer)) throw layerLost(handle.id, layer);
    }
    const agent = agentOf(handle);
    return agent !== undefined && isAlive(agent) && this.#parts.runDirs.hasSocket(handle.id) ? handle : undefined;
  }

  async kill(id: SandboxId): Promise<void> {
    const { cgroups } = this.#parts;
    this.#links.get(id)?.close();
    // The agent's end takes its process namespace along; what a bug let out of that is in the cgroups still.
    await Promise.all(this.#agentsOf(id).map(endAgent));
    await cgroups.kill(id);
    await cgroups.remove(id);
    this.#parts.processors.release(id);
    this.#parts.oomLog.forget(id);
  }

  async destroy(id: SandboxId): Promise<void> {
    await this.kill(id);
    await this.#parts.volume.removeUpper(id);
    // Last: while it is there, the sandbox can be found.
    this.#parts.runDirs.remove(id);
  }

  async usage(handle: Handle): Promise<Usage> {
    const { cgroups, oomLog, volume } = this.#parts;
    const counted = cgroups.usage(handle.id);
    const agent = agentOf(handle);
    const init = agent !== undefined && isAlive(agent) ? [agent.pid] : [];
    return {
      ...counted,
      // The log is looked at only when something is in it.
      oomVictims: counted.oomKills === 0 ? [] : oomLog.victims(handle.id),
      pids: Math.max(0, counted.pids - HELPER_PIDS),
      diskBytes: volume.usage(handle.id),
      // What has ended was waited for by the agent at last, which thereby took over its count.
      io: processIo([...init, ...cgroups.processes(handle.id)]),
      network: init[0] === undefined ? undefined : networkOf(init[0]),
    };
  }

  async inventory(): Promise<Inventory> {
    return takeInventory({ ...this.#parts, runDir: this.#options.runDir });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#opened.disposeAsync();
  }

  /** What to do about a sandbox of this id that is there: a live one is the answer, a half-made one is made anew. */
  async #earlier({ id, layers }: SandboxSpec): Promise<Handle | undefined> {
    const { runDirs } = this.#parts;
    const agent = runDirs.readAgent(id);
    if (agent !== undefined && isAlive(agent)) return handleOf(id, agent, layers);
    if (agent !== undefined) {
      throw new SandboxError("AlreadyExists", `sandbox ${id} is dead and keeps its files`, {
        hint: "destroy it first",
      });
    }
    await this.destroy(id);
    runDirs.make(id);
    return undefined;
  }

  async #launch(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<AgentRecord> {
    const { launcher, blanks, processors } = this.#parts;
    const { cpus } = spec.resources;
    const layers = await this.#options.mounts.acquire(spec.layers);
    const blank = await blanks.take(place.slot);
    try {
      const given = processorList(processors.assign(spec.id, cpus));
      const upper = await this.#upper(spec, place, blank);
      const { pid } = await launcher.create(this.#request(spec, place, { layers, upper, processors: given }), signal);
      return { ...this.#identify(spec.id, pid, blank), cpus, processors: given, createdTicks: bootTicks() };
    } catch (error) {
      blank?.link.close();
      await blanks.end(place.slot);
      throw error;
    }
  }

  async #upper(spec: SandboxSpec, place: Place, blank: Blank | undefined): Promise<Upper> {
    const { volume } = this.#parts;
    if (place.copied !== undefined) {
      if (blank !== undefined) await volume.removeUpper(blank.upper);
      return volume.openUpper(spec.id);
    }
    const limitBytes = diskLimitBytes(spec);
    if (blank !== undefined) return volume.renameUpper(blank.upper, spec.id, limitBytes);
    return volume.createUpper(spec.id, limitBytes);
  }

  #request(
    spec: SandboxSpec,
    place: Place,
    parts: { readonly layers: readonly string[]; readonly upper: Upper; readonly processors: string },
  ): CradleRequest {
    const { cgroups, profile, runDirs } = this.#parts;
    const { config } = this.#options;
    const prepared = {
      ...parts,
      cgroups: spec.cells === true ? cgroups.planCells(spec.id, limitsOf(spec)) : cgroups.plan(spec.id, limitsOf(spec)),
      agentCgroups: cgroups.agentDirs,
      socketPath: runDirs.socketPath(spec.id),
      profile,
      processors: config.spreadProcessors ? parts.processors : undefined,
    };
    return launchRequest(spec, place, prepared, config);
  }

  /** The agent of a sandbox that was made. When the blank has become it, who connects gets the link that is open already. */
  #identify(id: SandboxId, pid: number, blank: Blank | undefined): AgentProcess {
    if (blank?.agent.pid === pid) {
      const { agent, link } = blank;
      this.#links.set(id, link);
      void link.closed.then(() => {
        if (this.#links.get(id) === link) this.#links.delete(id);
      });
      return agent;
    }
    blank?.link.close();
    const startTicks = processStartTicks(pid);
    if (startTicks === undefined) throw lost(id);
    return { pid, startTicks };
  }

  /** Agents to end: the one that was written down, else those that the kernel knows. */
  #agentsOf(id: SandboxId): readonly AgentProcess[] {
    const written = this.#parts.runDirs.readAgent(id);
    if (written !== undefined) return [written];
    return findAgents(this.#parts.cgroups).get(id) ?? [];
  }
}

function lost(id: SandboxId, cause?: unknown): SandboxError {
  return new SandboxError("SandboxLost", `the agent of ${id} is gone`, cause === undefined ? {} : { cause });
}

/** While nobody served the data of a layer its readers may have got zeros, and may have kept them. */
function layerLost(id: SandboxId, layer: LayerDigest): SandboxError {
  return new SandboxError(
    "SandboxLost",
    `layer ${layer} of ${id} was not served for a while: what it read may be wrong`,
    {
      hint: "create it again; the layer itself is whole in the store",
      details: { layer },
    },
  );
}
