import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import { processStartTicks } from "#host/sys/process.ts";

/** The agent of a sandbox as the host sees it. The pair names one process for good, however pids are reused. */
export interface AgentProcess {
  readonly pid: number;
  readonly startTicks: number;
}

/** What the edge stores of a sandbox. */
export function handleOf(id: SandboxId, agent: AgentProcess): Handle {
  return { version: 1, id, opaque: { pid: agent.pid, startTicks: agent.startTicks } };
}

/** The agent a handle names; `undefined` for a handle that this backend did not make. */
export function agentOf(handle: Handle): AgentProcess | undefined {
  return handle.version === 1 ? asAgent(handle.opaque) : undefined;
}

/** An agent from text that this backend wrote; `undefined` when a crash cut it short. */
export function parseAgent(text: string): AgentProcess | undefined {
  try {
    return asAgent(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Whether this very process runs; a zombie does not. */
export function isAlive(agent: AgentProcess): boolean {
  return processStartTicks(agent.pid) === agent.startTicks;
}

function asAgent(value: unknown): AgentProcess | undefined {
  if (typeof value !== "object" || value === null || !("pid" in value) || !("startTicks" in value)) return undefined;
  const { pid, startTicks } = value;
  if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}
