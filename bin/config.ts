import { readFileSync } from "node:fs";
import { CONTAINER_SETTINGS } from "#backends/container/config.ts";
import { FUNCTION_SETTINGS } from "#backends/fncall/config.ts";
import { MICROVM_SETTINGS } from "#backends/microvm/config.ts";
import { VM_SETTINGS } from "#backends/vm/config.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import { choice, domain, durationMs, integer, mebibytes, path, text } from "#core/setting-kinds.ts";
import { defineSettings, type SettingsOf } from "#core/settings.ts";
import { EDGE_DEFAULTS } from "#edge/config.ts";
import { MECHANISMS } from "#host/lazy/requests.ts";

const PLACES = {
  dataDir: path("/var/lib/dsec", "Where layers, sandboxes' files, the journal and the token stay."),
  runDir: path("/run/dsec", "Sockets, mounts and what else need not survive a reboot."),
};

const MIB = 1024 * 1024;

/** Names under the same prefix that say where a client finds its server. */
const CLIENT_ENV = ["URL", "TOKEN"];

/** The settings of a node process: everything that `dsec up` takes. */
const loadNode = defineSettings(
  "DSEC",
  {
    ...PLACES,
    config: path(undefined, "Config file: JSON with a version and any of these settings."),
    listen: text("127.0.0.1:7433", "Address of the API; port 0 takes a free one."),
    portDomain: domain(
      "Domain of hosts {port}-{id}.DOMAIN that lead to ports of sandboxes; *.DOMAIN must lead here. Without one, ports have no hosts.",
    ),
    callBodies: mebibytes(
      "1GiB",
      "Memory for bodies of calls, from before they are read until they are answered, a quarter of it for one project; others wait.",
    ),
    nodeApi: choice(["memory", "websocket"], "memory", "How the apiserver talks to the edge of this process."),
    forkListen: text(
      undefined,
      "Where servers that name this node in --fork-nodes reach it, ADDRESS:PORT, encrypted with keys made of --node-token. None: nowhere.",
    ),
    forkNodes: text(
      "",
      "Other nodes for forks that this one has no room for: EDGE=ADDRESS:PORT, separated by commas. They have the same --store.",
    ),
    nodeToken: path(undefined, "File of mode 600 with the secret that nodes show each other for that."),
    edge: text("local", "Id of this node: 1 to 16 of a-z and 0-9. Part of every sandbox id."),
    maxSandboxes: integer("4000", "Most live sandboxes.", { min: 1, max: 30_000 }),
    cpuOvercommit: integer(
      String(EDGE_DEFAULTS.cpuOvercommit),
      "Processor time promised as a multiple of what there is.",
      { min: 1, max: 10_000 },
    ),
    memoryOvercommit: integer(
      String(EDGE_DEFAULTS.memoryOvercommit),
      "Memory promised as a multiple of what there is.",
      { min: 1, max: 10_000 },
    ),
    memoryReserve: mebibytes(
      `${EDGE_DEFAULTS.memoryReserveMiB}MiB`,
      "Memory that is never promised; with less available, as measured, the node takes no more sandboxes.",
    ),
    outputCap: mebibytes(
      `${EDGE_DEFAULTS.outputCapBytes / MIB}MiB`,
      "Kept of each output of a command that does not say.",
    ),
    outputBudget: mebibytes(
      `${EDGE_DEFAULTS.outputBudgetBytes / MIB}MiB`,
      "Kept of the outputs of one sandbox, all its commands together; the oldest that have ended go first.",
    ),
    restAfter: durationMs(
      "1m",
      "A machine that nobody has used for so long gives up files that its guest keeps in memory, in parts.",
    ),
    store: text(
      undefined,
      "Store that nodes share: the path of a directory, or s3://BUCKET/PREFIX. None: layers stay here.",
    ),
    storeEndpoint: text(undefined, "URL of an S3 server other than Amazon's."),
    storeRegion: text(undefined, "Region of the bucket; us-east-1 unless given."),
    storeCredentials: path(
      undefined,
      "File of mode 600 with credentials for S3, as AWS tools have it; else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    storeGrace: durationMs("1d", "What was put into the store within so long is not removed by a collection of it."),
    imageCache: mebibytes("32GiB", "Disk for data of layers that is fetched out of S3 when it is read."),
    lazyBy: choice(
      ["auto", ...MECHANISMS],
      "auto",
      "How the kernel tells that data of a layer is about to be read; auto takes the better one that works here.",
    ),
    fetchTimeout: durationMs("30s", "How long a read waits for data of a layer before it fails."),
    fetchNetworks: text(
      "",
      "Networks of this machine from which projects may import and to which they may export, as 10.1.0.0/16, separated by commas; any: all.",
    ),
    registryAuthFile: path(
      undefined,
      "Credentials for registries, as podman login writes them, for every project's imports that bring none.",
    ),
    registriesFile: path(undefined, "Mirrors of registries, instead of /etc/containers/registries.conf."),
    buildCacheAge: durationMs("7d", "Steps of image builds that no build has used for so long are removed."),
    collapseBelow: mebibytes(
      "3GiB",
      "Neighbouring layers of an image are merged while they are together no larger than this.",
    ),
    ...CONTAINER_SETTINGS,
    ...MICROVM_SETTINGS,
    ...VM_SETTINGS,
    ...FUNCTION_SETTINGS,
    logLevel: text("info", "fatal, error, warn, info, debug or trace."),
  },
  { foreignEnv: CLIENT_ENV },
);

/** What a node process is told. */
export type NodeConfig = SettingsOf<typeof loadNode.table>;

/** The settings of a node from its words, the environment and the config file that either names. */
export function loadNodeConfig(argv: readonly string[], env: Readonly<Record<string, string | undefined>>): NodeConfig {
  const { config } = loadNode({ argv, env });
  return config === undefined ? loadNode({ argv, env }) : loadNode({ argv, env, file: readConfig(config) });
}

/** What `dsec up --help` lists. */
export function nodeSettingsHelp(): string {
  return loadNode.help();
}

function readConfig(name: string): { readonly name: string; readonly text: string } {
  try {
    return { name, text: readFileSync(name, "utf8") };
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "EISDIR", "ENOTDIR")) throw error;
    throw new SandboxError("InvalidArgument", `the config file ${name} cannot be read`, { cause: error });
  }
}

/** Names under the prefix that only a node reads. */
const NODE_ENV = Object.keys(loadNode.table)
  .filter((key) => !Object.hasOwn(PLACES, key))
  .map((key) => key.replace(/[A-Z]/g, "_$&").toUpperCase());

/** Settings of the commands that only look for a node. */
export const loadPlaces = defineSettings("DSEC", PLACES, { foreignEnv: [...CLIENT_ENV, ...NODE_ENV] });

/** Where this machine's node keeps what others look for. */
export type Places = SettingsOf<typeof loadPlaces.table>;
