import { durationMs, flag, integer, mebibytes, path, text } from "#core/setting-kinds.ts";
import { defineSettings, type SettingsOf } from "#core/settings.ts";

const PLACES = {
  dataDir: path("/var/lib/dsec", "Where layers, sandboxes' files, the journal and the token stay."),
  runDir: path("/run/dsec", "Sockets, mounts and what else need not survive a reboot."),
};

/** Names under the same prefix that say where a client finds its server. */
const CLIENT_ENV = ["URL", "TOKEN"];

/** The settings of a node process: everything that `dsec up` takes. */
export const loadNodeConfig = defineSettings(
  "DSEC",
  {
    ...PLACES,
    config: path(undefined, "Config file: JSON with a version and any of these settings."),
    listen: text("127.0.0.1:7433", "Address of the API; port 0 takes a free one."),
    edge: text("local", "Id of this node: 1 to 16 of a-z and 0-9. Part of every sandbox id."),
    maxSandboxes: integer("4000", "Most live sandboxes.", { min: 1, max: 30_000 }),
    cpuOvercommit: integer("16", "Processor time promised as a multiple of what there is.", { min: 1, max: 1_000 }),
    memoryOvercommit: integer("8", "Memory promised as a multiple of what there is.", { min: 1, max: 1_000 }),
    volumeSize: mebibytes("64GiB", "Most bytes that all sandboxes together may write; taken as they are used."),
    defaultIdleTimeout: durationMs(undefined, "Idle timeout of sandboxes that ask for none."),
    logLevel: text("info", "fatal, error, warn, info, debug or trace."),
    keep: flag(false, "Leave sandboxes alive when the node stops; the next one adopts them."),
  },
  { foreignEnv: CLIENT_ENV },
);

/** What a node process is told. */
export type NodeConfig = SettingsOf<typeof loadNodeConfig.table>;

/** Settings of the commands that only look for a node. */
export const loadPlaces = defineSettings("DSEC", PLACES, {
  foreignEnv: [
    ...CLIENT_ENV,
    ...Object.keys(loadNodeConfig.table).map((key) => key.replace(/[A-Z]/g, "_$&").toUpperCase()),
  ],
});

/** Where this machine's node keeps what others look for. */
export type Places = SettingsOf<typeof loadPlaces.table>;
