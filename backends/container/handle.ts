import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { processStartTicks } from "#host/sys/process.ts";

/** The agent of a sandbox as the host sees it. The pair names one process for good, however pids are reused. */
export interface AgentProcess {
  readonly pid: number;
  readonly startTicks: number;
}

/** An agent, and the processors that its sandbox was given. The node's view of sandboxes reads it, too. */
export interface AgentRecord extends AgentProcess {
  readonly cpus: number;
  /** A list such as `0-2,5`. */
  readonly processors: string;
  /** When the sandbox was made, in clock ticks since boot: its agent may be older. */
  readonly createdTicks: number;
}

/** What the edge stores of a sandbox. */
export function handleOf(id: SandboxId, agent: AgentProcess, layers: readonly LayerDigest[]): Handle {
  return { version: 1, id, opaque: { pid: agent.pid, startTicks: agent.startTicks, layers } };
}

/** The layers that the sandbox reads from; none for a handle that does not say. */
export function layersOf({ opaque }: Handle): readonly unknown[] {
  return Array.isArray(opaque.layers) ? opaque.layers : [];
}

/** The agent a handle names; `undefined` for a handle that this backend did not make. */
export function agentOf(handle: Handle): AgentProcess | undefined {
  return handle.version === 1 ? asAgent(handle.opaque) : undefined;
}

/** A record from text that this backend wrote; `undefined` when a crash cut it short. */
export function parseRecord(text: string): AgentRecord | undefined {
  try {
    return asRecord(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Whether this very process runs; a zombie does not. */
export function isAlive(agent: AgentProcess): boolean {
  return processStartTicks(agent.pid) === agent.startTicks;
}

function asRecord(value: unknown): AgentRecord | undefined {
  const agent = asAgent(value);
  if (agent === undefined || typeof value !== "object" || value === null) return undefined;
  if (!("cpus" in value) || !("processors" in value) || !("createdTicks" in value)) return undefined;
  const { cpus, processors, createdTicks } = value;
  if (typeof cpus !== "number" || typeof processors !== "string" || typeof createdTicks !== "number") return undefined;
  return { ...agent, cpus, processors, createdTicks };
}

function asAgent(value: unknown): AgentProcess | undefined {
  if (typeof value !== "object" || value === null || !("pid" in value) || !("startTicks" in value)) return undefined;
  const { pid, startTicks } = value;
  if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}
