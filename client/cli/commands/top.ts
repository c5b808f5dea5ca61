import { setTimeout as delay } from "node:timers/promises";
import type { Client, UsageView } from "#sdk";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { Interrupts } from "../interrupts.ts";
import { bytesText, type CliContext, printable, table } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Options of `top`. */
export interface TopOptions {
  readonly label?: Record<string, string>;
  readonly interval?: number;
  readonly once?: boolean;
}

const DEFAULT_INTERVAL_MS = 2_000;
/** Sandboxes asked at the same time. */
const CONCURRENCY = 8;
/** Back to the top of the screen, and nothing below what is printed. */
const HOME = "\x1b[H\x1b[J";

/** What one look at a sandbox gave. */
type Sample = { readonly id: string; readonly usage: UsageView } | { readonly id: string; readonly error: string };

/**
 * What sandboxes use. On a terminal a table that is drawn again and again, elsewhere one table; as JSON one line a sample, until
 * the person leaves. One look at what was named is a failure when one of them cannot be asked. Processor time is shown as a share of one processor over the last interval.
 */
export async function top(context: CliContext, ids: readonly string[], options: TopOptions): Promise<number> {
  const client = await context.connect({ start: false });
  const { stdout } = context.io;
  const intervalMs = options.interval ?? DEFAULT_INTERVAL_MS;
  const isScreen = "isTTY" in stdout && stdout.isTTY === true && options.once !== true;
  using interrupts = new Interrupts(context.io);
  const { signal } = interrupts;
  let before = new Map<string, UsageView>();
  try {
    for (let round = 0; ; round += 1) {
      const samples = await sampleAll(client, ids.length > 0 ? ids : await idsOf(client, options, signal), signal);
      if (context.json) for (const sample of samples) stdout.write(`${JSON.stringify(jsonOf(sample))}\n`);
      else if (isScreen) stdout.write(HOME + tableOf(samples, before));
      // Two looks make a rate.
      else if (round === 1) stdout.write(tableOf(samples, before));
      if (context.json ? options.once === true : !isScreen && round === 1) {
        return ids.length > 0 && samples.some((sample) => "error" in sample) ? PLATFORM_FAILURE : 0;
      }
      before = new Map(samples.flatMap((sample) => ("usage" in sample ? [[sample.id, sample.usage] as const] : [])));
      await delay(intervalMs, undefined, { signal });
    }
  } catch (error) {
    if (interrupts.left !== undefined) return isScreen ? 0 : interrupts.left;
    throw error;
  }
}

async function idsOf(client: Client, { label }: TopOptions, signal: AbortSignal): Promise<readonly string[]> {
  const views = await Array.fromAsync(client.sandboxes.list({ ...compact({ labels: label }), signal }));
  return views.filter(({ state }) => state === "ready").map(({ id }) => id);
}

/** In the order of the ids; one that cannot be asked keeps no other from being shown. */
async function sampleAll(client: Client, ids: readonly string[], signal: AbortSignal): Promise<readonly Sample[]> {
  const samples = new Map<string, Sample>();
  const pending = [...ids];
  const worker = async () => {
    for (let id = pending.shift(); id !== undefined; id = pending.shift()) {
      try {
        samples.set(id, { id, usage: await client.sandboxes.use(id).usage({ signal }) });
      } catch (error) {
        signal.throwIfAborted();
        samples.set(id, { id, error: error instanceof Error ? error.message : String(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return ids.flatMap((id) => samples.get(id) ?? []);
}

function jsonOf(sample: Sample): unknown {
  return "usage" in sample ? sample.usage : sample;
}

function tableOf(samples: readonly Sample[], before: ReadonlyMap<string, UsageView>): string {
  const heading = ["ID", "CPU", "MEMORY", "LIMIT", "PEAK", "MACHINE", "PIDS", "DISK", "IO R/W", "OOM", "COMMANDS"];
  const rows = samples.flatMap((sample) => ("usage" in sample ? [rowOf(sample.usage, before.get(sample.id))] : []));
  const failed = samples.flatMap((sample) => ("error" in sample ? [`${sample.id}: ${printable(sample.error)}\n`] : []));
  return table(heading, rows) + failed.join("");
}

function rowOf(usage: UsageView, before: UsageView | undefined): string[] {
  const { id, memory, limits, io, machine } = usage;
  return [
    id,
    cpuText(usage, before),
    bytesText(memory.bytes),
    bytesText(limits.memoryBytes),
    bytesText(memory.peakBytes),
    machine === undefined ? "-" : `${bytesText(machine.privateBytes)}+${bytesText(machine.sharedBytes)}`,
    `${usage.pids}/${limits.pids}`,
    usage.diskBytes === undefined ? "-" : bytesText(usage.diskBytes),
    io === undefined ? "-" : `${bytesText(io.readBytes)}/${bytesText(io.writeBytes)}`,
    String(usage.oomKills),
    `${usage.commands.running}/${usage.commands.recorded}`,
  ];
}

function cpuText(usage: UsageView, before: UsageView | undefined): string {
  if (before === undefined || usage.atMs <= before.atMs) return "-";
  return `${((100 * (usage.cpu.totalMs - before.cpu.totalMs)) / (usage.atMs - before.atMs)).toFixed(1)}%`;
}
