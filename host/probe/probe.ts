import { type Finding, type HostFact, type Look, missing } from "./fact.ts";
import { kernelLooks } from "./kernel.ts";
import { mountLooks, withPrivateMounts } from "./mounts.ts";
import { resourceLooks } from "./resources.ts";
import { toolLooks } from "./tools.ts";

/** What `probeHost` is told. */
export interface ProbeOptions {
  /** Where the node would keep its data; need not exist yet. */
  readonly dataDir: string;
  /** Time for each look. */
  readonly limitMs?: number;
}

const DEFAULT_LIMIT_MS = 10_000;

/**
 * What this host can do, each thing really tried. Leaves the host as it was: mounts are tried in a namespace of their own
 * and trial cgroups are removed. Never throws and takes bounded time: what fails or hangs is a finding.
 */
export async function probeHost(options: ProbeOptions): Promise<readonly HostFact[]> {
  const limitMs = options.limitMs ?? DEFAULT_LIMIT_MS;
  await using mounts = withPrivateMounts(limitMs);
  const looks = [...kernelLooks(), ...mountLooks(mounts), ...resourceLooks(options.dataDir), ...toolLooks()];
  const facts: HostFact[] = [];
  // One after the other: a look that loads the machine must not make its neighbour time out.
  for (const look of looks) facts.push(toFact(look, await lookInTime(look, limitMs)));
  return facts;
}

function toFact({ name, why, how }: Look, { state, detail }: Finding): HostFact {
  return { name, state, why, how: state === "works" ? "" : how, detail };
}

async function lookInTime(look: Look, limitMs: number): Promise<Finding> {
  const { promise: late, resolve } = Promise.withResolvers<Finding>();
  const timer = setTimeout(() => resolve(missing(`no answer within ${limitMs / 1000} s`)), limitMs);
  try {
    return await Promise.race([Promise.resolve().then(() => look.look()), late]);
  } catch (error) {
    return missing(error instanceof Error ? error.message : String(error));
  } finally {
    clearTimeout(timer);
  }
}
