import { SandboxError } from "#core/errors.ts";
import type { EdgeId } from "#core/ids.ts";
import type { NodeInfo } from "#core/node.ts";
import type { BackendKind } from "#core/sandbox.ts";
import type { Random } from "./random.ts";

//   views ─► filter: alive, has the backend, could ever hold it ─► rank: two at random, the emptier first ─► try in turn
//
// A view is a little old, so it only orders the nodes: a node that looks full is asked last, and the node itself decides.

/** What a sandbox needs of a node. */
export interface Demand {
  readonly backend: BackendKind;
  readonly cpus: number;
  readonly memoryMiB: number;
}

/** A node as the watcher sees it, and what this control plane has placed there since that view was taken. */
export interface Candidate {
  readonly info: NodeInfo;
  readonly lost: boolean;
  readonly recent: Load;
}

/** Sandboxes placed and the resources promised to them. */
export interface Load {
  readonly sandboxes: number;
  readonly cpus: number;
  readonly memoryMiB: number;
}

/**
 * The nodes to ask, best first, each once. Throws `Unavailable` when no node answers, `FailedPrecondition` when none has
 * the backend, `InvalidArgument` when none could hold the demand even if it were empty.
 */
export function rank(demand: Demand, candidates: readonly Candidate[], random: Random): readonly EdgeId[] {
  const able = filter(demand, candidates);
  const withRoom = able.filter((candidate) => hasRoom(demand, candidate));
  const full = able.filter((candidate) => !hasRoom(demand, candidate));
  return [...spread(withRoom, random), ...spread(full, random)].map(({ info }) => info.edge);
}

/** The share of a node that is promised, by the resource it has least of: 0 is empty, 1 is full. */
export function fullness({ info: { capacity, promised }, recent }: Candidate): number {
  return Math.max(
    share(promised.cpus + recent.cpus, capacity.cpus),
    share(promised.memoryMiB + recent.memoryMiB, capacity.memoryMiB),
    share(promised.sandboxes + recent.sandboxes, capacity.sandboxes),
  );
}

function filter(demand: Demand, candidates: readonly Candidate[]): readonly Candidate[] {
  const alive = candidates.filter((candidate) => !candidate.lost);
  if (alive.length === 0) {
    throw new SandboxError("Unavailable", "no node answers", { hint: "start a node, or wait until one is back" });
  }
  const kin = alive.filter(({ info }) => info.backends.includes(demand.backend));
  if (kin.length === 0) {
    throw new SandboxError("FailedPrecondition", `no node runs sandboxes of backend ${demand.backend}`, {
      details: { backends: [...new Set(alive.flatMap(({ info }) => info.backends))] },
    });
  }
  const able = kin.filter(({ info }) => fits(demand, info.capacity));
  if (able.length === 0) throw tooLarge(demand, kin);
  return able;
}

function tooLarge(demand: Demand, kin: readonly Candidate[]): SandboxError {
  const memoryMiB = Math.max(...kin.map(({ info }) => info.capacity.memoryMiB));
  const cpus = Math.max(...kin.map(({ info }) => info.capacity.cpus));
  const short = demand.memoryMiB > memoryMiB ? "resources.memoryMiB" : "resources.cpus";
  const [asked, most] = demand.memoryMiB > memoryMiB ? [demand.memoryMiB, memoryMiB] : [demand.cpus, cpus];
  return new SandboxError("InvalidArgument", `${short} is ${asked}, and the largest node has ${most}`, {
    hint: "ask for less, or add a larger node",
    details: { memoryMiB, cpus },
  });
}

function fits(demand: Demand, room: { readonly cpus: number; readonly memoryMiB: number }): boolean {
  return demand.cpus <= room.cpus && demand.memoryMiB <= room.memoryMiB;
}

function hasRoom(demand: Demand, { info: { capacity, promised }, recent }: Candidate): boolean {
  const left = {
    cpus: capacity.cpus - promised.cpus - recent.cpus,
    memoryMiB: capacity.memoryMiB - promised.memoryMiB - recent.memoryMiB,
  };
  return fits(demand, left) && promised.sandboxes + recent.sandboxes < capacity.sandboxes;
}

/**
 * Power of two choices: of two at random the emptier comes first. Always taking the emptiest would send every control
 * plane to the same node at once.
 */
function spread(candidates: readonly Candidate[], random: Random): readonly Candidate[] {
  const rest = [...candidates];
  const order: Candidate[] = [];
  while (rest.length > 0) {
    const first = Math.floor(random() * rest.length);
    const second = (first + 1 + Math.floor(random() * (rest.length - 1))) % rest.length;
    const [one, two] = [rest[first], rest[second]];
    if (one === undefined || two === undefined) throw new Error("random() is outside [0, 1)");
    const index = fullness(two) < fullness(one) ? second : first;
    order.push(...rest.splice(index, 1));
  }
  return order;
}

function share(used: number, of: number): number {
  return of > 0 ? used / of : Number.POSITIVE_INFINITY;
}
