import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import { processStartTicks } from "#host/sys/process.ts";

/** A process, told apart from later ones of the same number. */
export interface ProcessRecord {
  readonly pid: number;
  readonly startTicks: number;
}

/** Who has the connection with the kernel: each that is alive can give it on. */
export interface ViewRecord {
  readonly server: ProcessRecord | undefined;
  readonly holder: ProcessRecord | undefined;
}

/** Writes down who they are, whole or not at all. */
export function writeViewRecord(runDir: string, pids: { readonly server: number; readonly holder: number }): void {
  const file = join(runDir, "view.json");
  const record = { ...identify(pids.server), holder: identify(pids.holder) };
  writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** Nobody, when there is no record, or it makes no sense. */
export function readViewRecord(runDir: string): ViewRecord {
  try {
    const record: unknown = JSON.parse(readFileSync(join(runDir, "view.json"), "utf8"));
    const holder = typeof record === "object" && record !== null && "holder" in record ? record.holder : undefined;
    return { server: parsed(record), holder: parsed(holder) };
  } catch (error) {
    if (hasCode(error, "ENOENT") || error instanceof SyntaxError) return { server: undefined, holder: undefined };
    throw error;
  }
}

function identify(pid: number): ProcessRecord | undefined {
  const startTicks = pid === 0 ? undefined : processStartTicks(pid);
  return startTicks === undefined ? undefined : { pid, startTicks };
}

function parsed(value: unknown): ProcessRecord | undefined {
  const { pid, startTicks } = (typeof value === "object" && value !== null ? value : {}) as Partial<ProcessRecord>;
  if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}
