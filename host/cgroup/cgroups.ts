import { readFileSync } from "node:fs";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { freezeCgroup, thawCgroup } from "./freeze.ts";
import { prepareTrees, readFeatures, removeTrees } from "./host.ts";
import { isPopulated, killCgroup, processesOf } from "./kill.ts";
import { type CgroupLayout, type Hierarchy, type NodeTree, readLayout } from "./layout.ts";
import { type CgroupFeatures, type CgroupLimits, type CgroupWrite, checkLimits, limitWrites } from "./limits.ts";
import { removeCgroup } from "./remove.ts";
import { subdirectories } from "./tree.ts";
import { type CgroupUsage, readUsage } from "./usage.ts";

export type { CgroupLimits } from "./limits.ts";

/** One cgroup that the launcher makes: the writes in order, then processes may join. */
export interface CgroupPlan {
  readonly dir: string;
  readonly writes: readonly CgroupWrite[];
  /** Whether the sandbox's spawner moves itself into it. */
  readonly handOver: boolean;
  /** Whether the sandbox's root may make cgroups in it. */
  readonly delegate?: boolean;
}

/**
 * The cgroups of one node: `<mount>/dsec/<node>/<sandbox id>` in every tree that a sandbox needs, and `agents` beside
 * them. Two nodes of one machine never touch each other's. Keeps nothing in memory about sandboxes.
 */
export interface Cgroups extends AsyncDisposable {
  readonly layout: CgroupLayout;
  /** The node's own directory in each tree. */
  readonly trees: readonly NodeTree[];
  readonly features: CgroupFeatures;
  /** Throws `FailedPrecondition` for what this host cannot enforce. */
  check(limits: CgroupLimits): void;
  /** What the launcher has to make for a sandbox. Changes nothing; runs `check`. */
  plan(id: string, limits: CgroupLimits): readonly CgroupPlan[];
  /** The same for one that makes cgroups of its own: its processes start in `MAIN` below its own, which it may make others beside. */
  planCells(id: string, limits: CgroupLimits): readonly CgroupPlan[];
  /** Where agents live, one directory a tree: outside the limits of what they start, and first in line. */
  readonly agentDirs: readonly string[];
  /** Processes that live there: agents, and the launcher that starts them. */
  agentPids(): readonly number[];
  /** Ends every process that lives there; resolves when none is left. */
  killAgents(): Promise<void>;
  /** Ends every process of a sandbox's cgroups; resolves when none is left. Safe twice, and for unknown ids. */
  kill(id: string): Promise<void>;
  /** Removes a sandbox's cgroups, which must have no live process. Safe twice, and for unknown ids. */
  remove(id: string): Promise<void>;
  /** Holds every process of a sandbox still until `thaw`, see `freezeCgroup`. */
  freeze(id: string, signal: AbortSignal): Promise<void>;
  /** Lets them go on. Safe when nothing is held, and for unknown ids. */
  thaw(id: string): void;
  /** Zeros for what is not there. */
  usage(id: string): CgroupUsage;
  /** Processes of a sandbox's cgroups; none for unknown ids. */
  processes(id: string): readonly number[];
  /** Whether any process is in a sandbox's cgroups. */
  isPopulated(id: string): boolean;
  /** Ids that have a cgroup in any tree. */
  list(): ReadonlySet<string>;
}

/** Where agents live. No sandbox can have this name: sandbox ids carry a dash. */
const AGENTS = "agents";

/** Where the processes of a sandbox start that makes cgroups of its own: in v2 none may be above those with limits. */
export const MAIN = "main";

/** A node name becomes a directory name. */
const NODE_NAME = /^[a-z0-9][a-z0-9-]{0,31}$/;

/**
 * Looks at the host and makes the node's own (empty) cgroups. Throws `FailedPrecondition` when the host has no usable
 * cgroups. Disposing removes them again, as far as no sandbox lives in them.
 */
export async function openCgroups(node: string, layout: CgroupLayout = readLayout()): Promise<Cgroups> {
  if (!NODE_NAME.test(node)) throw new Error(`node name ${JSON.stringify(node)} cannot name a cgroup`);
  if (layout.mode === "none") {
    throw new SandboxError("FailedPrecondition", "this host has no cgroups mounted", {
      hint: "mount cgroup2 at /sys/fs/cgroup",
    });
  }
  const dirs = layout.hierarchies.map((tree) => ({ tree, dir: join(tree.mount, "dsec", node) }));
  try {
    await prepareTrees(dirs, AGENTS);
  } catch (error) {
    await removeTrees(dirs, AGENTS);
    throw error;
  }
  return new NodeCgroups(layout, readFeatures(dirs, AGENTS), dirs);
}

class NodeCgroups implements Cgroups {
  readonly layout: CgroupLayout;
  readonly features: CgroupFeatures;
  readonly trees: readonly NodeTree[];

  constructor(layout: CgroupLayout, features: CgroupFeatures, trees: readonly NodeTree[]) {
    this.layout = layout;
    this.features = features;
    this.trees = trees;
  }

  check(limits: CgroupLimits): void {
    checkLimits(limits, this.features);
  }

  plan(id: string, limits: CgroupLimits): readonly CgroupPlan[] {
    this.check(limits);
    return this.trees.map(({ tree, dir }) => ({
      dir: join(dir, id),
      writes: limitWrites(tree, limits, this.features),
      handOver: true,
    }));
  }

  planCells(id: string, limits: CgroupLimits): readonly CgroupPlan[] {
    this.check(limits);
    const own = this.trees.map(({ tree, dir }) => ({
      tree,
      dir: join(dir, id),
      writes: [...limitWrites(tree, limits, this.features), ...handDownWrites(tree)],
    }));
    const doors = own.map(({ dir }) => ({ dir: join(dir, MAIN), writes: [], handOver: true }));
    // A tree that can neither limit memory or processes nor count time has nothing for a cell.
    const useful = ({ tree }: (typeof own)[number]) =>
      tree.version === 2 || tree.controllers.has("memory") || tree.controllers.has("pids");
    const made = own.map((each) => ({ dir: each.dir, writes: each.writes, handOver: false, delegate: useful(each) }));
    return [...made, ...doors];
  }

  get agentDirs(): readonly string[] {
    return this.trees.map(({ dir }) => join(dir, AGENTS));
  }

  agentPids(): readonly number[] {
    const [dir] = this.agentDirs;
    return dir === undefined ? [] : processesOf(dir);
  }

  async killAgents(): Promise<void> {
    await this.kill(AGENTS);
  }

  async kill(id: string): Promise<void> {
    await killCgroup(this.#dirs(id));
  }

  async remove(id: string): Promise<void> {
    await Promise.all(this.#dirs(id).map(({ dir }) => removeCgroup(dir)));
  }

  freeze(id: string, signal: AbortSignal): Promise<void> {
    return freezeCgroup(this.#dirs(id), signal);
  }

  thaw(id: string): void {
    thawCgroup(this.#dirs(id));
  }

  usage(id: string): CgroupUsage {
    return readUsage(this.#dirs(id), readOrEmpty);
  }

  processes(id: string): readonly number[] {
    const [first] = this.#dirs(id);
    return first === undefined ? [] : processesOf(first.dir);
  }

  isPopulated(id: string): boolean {
    return isPopulated(this.#dirs(id));
  }

  list(): ReadonlySet<string> {
    return new Set(this.trees.flatMap(({ dir }) => subdirectories(dir)).filter((name) => name !== AGENTS));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Where sandboxes are left their agents live on; without any, what is there is dying.
    if (this.list().size === 0) await Promise.all(this.agentDirs.map((dir) => removeCgroup(dir)));
    await removeTrees(this.trees, AGENTS);
  }

  #dirs(id: string): readonly NodeTree[] {
    return this.trees.map(({ tree, dir }) => ({ tree, dir: join(dir, id) }));
  }
}

/** In v2 a cgroup's own children have its controllers when it says so. */
function handDownWrites({ version, controllers }: Hierarchy): readonly CgroupWrite[] {
  if (version === 1 || controllers.size === 0) return [];
  return [["cgroup.subtree_control", [...controllers].map((name) => `+${name}`).join(" ")]];
}

function readOrEmpty(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENODEV", "EOPNOTSUPP")) return "";
    throw error;
  }
}
