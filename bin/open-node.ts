import { randomInt } from "node:crypto";
import { availableParallelism, totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { openContainerBackend } from "#backends/container/backend.ts";
import { openFunctions } from "#backends/fncall/backend.ts";
import { functionSettings } from "#backends/fncall/config.ts";
import { type MicrovmOptions, openMicrovmBackend } from "#backends/microvm/backend.ts";
import { guestDirOf } from "#backends/microvm/config.ts";
import { openVmBackend, type VmOptions } from "#backends/vm/backend.ts";
import { type ControlConfig, openControl, SqliteState } from "#control/index.ts";
import type { Backend } from "#core/backend.ts";
import { systemClock } from "#core/clock.ts";
import { parseEdgeId } from "#core/ids.ts";
import { EDGE_DEFAULTS } from "#edge/config.ts";
import { openEdge } from "#edge/edge.ts";
import { parseNetworks } from "#host/fetch/internal.ts";
import type { RegistrySettings } from "#host/fetch/skopeo.ts";
import { helperUid } from "#host/id-ranges.ts";
import { availableMemoryMiB } from "#host/sys/memory.ts";
import { provideTerminals } from "#host/terminals.ts";
import { parseAddress } from "./address.ts";
import { type MakerParts, openArtifactMaker } from "./artifact-maker.ts";
import type { NodeConfig } from "./config.ts";
import { connectEdge } from "./connect-edge.ts";
import { lockDataDir } from "./data-lock.ts";
import { checkForkSettings, joinForkNodes, takeForks } from "./fork-nodes.ts";
import { openNodeImages } from "./node-images.ts";
import { tokenFile } from "./places.ts";
import { built, SESSION_SHELL } from "./programs.ts";
import { provideToken } from "./token-file.ts";
import { VERSION } from "./version.ts";

/** A node that answers. */
export interface OpenNode {
  readonly url: string;
  /** Stops answering, then removes the sandboxes or leaves them to the next node. Nothing else of the node stays. */
  close(options: { readonly keepSandboxes: boolean }): Promise<void>;
}

const MIB = 1024 * 1024;
const SHIPPED_RUNTIMES = fileURLToPath(new URL("../backends/fncall/runtimes", import.meta.url));

/** All roles in this process; what was opened is closed in reverse, whatever fails on the way. */
export async function openNode(config: NodeConfig): Promise<OpenNode> {
  const log = pino({ level: config.logLevel, base: null });
  const say = (line: string) => log.info({}, line);
  const clock = systemClock;
  const edgeId = parseEdgeId(config.edge);
  let keepSandboxes = true;
  await using opened = new AsyncDisposableStack();
  opened.use(lockDataDir(config.dataDir));
  checkForkSettings(config);
  const { store, objects, share, shared, supply, mounts } = opened.use(
    await openNodeImages(config, { log, keepsMounts: () => keepSandboxes }),
  );
  const parts = { ...backendPlaces(config), store, supply, config, log: say };
  const terminals = provideTerminals(config.maxSandboxes);
  if (terminals !== undefined) say(terminals);
  const containers = opened.use(await openContainerBackend({ ...parts, mounts }));
  const { firstUid } = config;
  const machines = openMachineBackends(opened, { ...parts, mounts, firstUid });
  const edge = await openEdge({
    config: edgeConfig(config),
    backends: [containers, ...machines],
    functions: (host) =>
      openFunctions({ backend: containers, host, settings: functionSettings(config), clock, log: say }),
    clock,
    log,
    share,
    availableMemoryMiB,
  });
  mounts.forgetLost();
  opened.defer(() => edge.close({ keepSandboxes }));
  const node = opened.use(await connectEdge(edge, config.nodeApi, log));
  const state = opened.use(new SqliteState(join(config.dataDir, "control.db")));
  const maker = opened.use(await openArtifactMaker(makerParts(config, { store, objects, mounts }), clock));
  const control = opened.use(
    await openControl({
      config: controlConfig(config),
      state,
      nodes: [{ edge: edgeId, node }],
      maker,
      store: shared,
      log,
      clock,
    }),
  );
  await provideToken(control, tokenFile(config));
  opened.use(await joinForkNodes(control, config, log));
  opened.use(await takeForks(edge, config, log));
  const url = await control.listen();
  const closing = opened.move();
  return {
    url,
    async close(options) {
      ({ keepSandboxes } = options);
      await closing.disposeAsync();
    },
  };
}

/** What artifacts are made with, systems with the agent among them. */
function makerParts(config: NodeConfig, images: Pick<MakerParts, "store" | "objects" | "mounts">): MakerParts {
  return {
    ...images,
    registries: registrySettings(config),
    fetchNetworks: config.fetchNetworks === "any" ? "any" : parseNetworks(config.fetchNetworks),
    collapseBytes: config.collapseBelow * MIB,
    helperUid: helperUid(config.firstUid),
    system: { guestDir: guestDirOf(config, config.dataDir), agent: built("dsec-agent"), shell: SESSION_SHELL },
  };
}

/** What both kinds of virtual machines are opened with. */
type MachineOptions = MicrovmOptions & Omit<VmOptions, "accelerator">;

/** They open what they need when the first of them is asked for; both run their processors in the same way. */
function openMachineBackends(opened: AsyncDisposableStack, options: MachineOptions): readonly Backend[] {
  const machines = opened.use(openMicrovmBackend(options));
  const accelerator = () => machines.accelerator(options.firstUid);
  return [machines, opened.use(openVmBackend({ ...options, accelerator }))];
}

/** Where a node's sandboxes are, and what was built for them. */
function backendPlaces({ edge, dataDir, runDir }: NodeConfig) {
  const binaries = {
    cradle: built("dsec-cradle"),
    agent: built("dsec-agent"),
    view: built("dsec-view"),
    lender: built("dsec-lend.so"),
    shell: SESSION_SHELL,
  };
  return { edge: parseEdgeId(edge), dataDir, runDir, binaries };
}

function controlConfig(config: NodeConfig): ControlConfig {
  return {
    ...parseAddress(config.listen, "--listen"),
    version: VERSION,
    portDomain: config.portDomain,
    bodyBytes: config.callBodies * MIB,
    buildCacheMs: config.buildCacheAge,
    defaultBackend: "container",
    seed: randomInt(2 ** 31),
    runtimeDirectories: [SHIPPED_RUNTIMES, join(config.dataDir, "runtimes")],
  };
}

function registrySettings({ registryAuthFile, registriesFile }: NodeConfig): RegistrySettings {
  return { authFile: registryAuthFile, registriesFile };
}

function edgeConfig(config: NodeConfig) {
  return {
    ...EDGE_DEFAULTS,
    edge: parseEdgeId(config.edge),
    version: VERSION,
    dataDir: join(config.dataDir, "edge"),
    capacity: {
      cpus: availableParallelism(),
      memoryMiB: Math.max(1, Math.floor(totalmem() / MIB) - config.memoryReserve),
      sandboxes: config.maxSandboxes,
    },
    cpuOvercommit: config.cpuOvercommit,
    memoryOvercommit: config.memoryOvercommit,
    memoryReserveMiB: config.memoryReserve,
    outputCapBytes: config.outputCap * MIB,
    outputBudgetBytes: config.outputBudget * MIB,
    restAfterMs: config.restAfter,
  };
}
