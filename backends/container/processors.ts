import { readFileSync } from "node:fs";
import type { SandboxId } from "#core/ids.ts";
import { isAlive } from "./handle.ts";
import type { RunDirs } from "./run-dirs.ts";

/** What one sandbox holds of each of its processors. */
interface Share {
  readonly processors: readonly number[];
  readonly each: number;
}

/**
 * Gives every sandbox processors of its own choice: as many as its limit can keep busy, those that are promised least. A program
 * that asks how many there are starts as many threads as can run. It is a preference, which the sandbox may widen: the limit of
 * processor time holds all the same. Kept in memory, and found again in the records of live sandboxes.
 */
export class Processors {
  readonly #promised: Map<number, number>;
  readonly #shares = new Map<string, Share>();

  /** `available`: numbers of those that this node may use. */
  constructor(available: readonly number[]) {
    this.#promised = new Map(available.map((number) => [number, 0]));
  }

  /** Processors for a new sandbox, ascending. */
  assign(id: string, cpus: number): readonly number[] {
    this.release(id);
    const count = Math.min(this.#promised.size, Math.max(1, Math.ceil(cpus)));
    // Numbers decide between equals, so that neighbours, which share caches, go together.
    const byPromise = [...this.#promised].sort(([a, most], [b, least]) => most - least || a - b);
    const processors = byPromise
      .slice(0, count)
      .map(([number]) => number)
      .sort((a, b) => a - b);
    this.adopt(id, cpus, processors);
    return processors;
  }

  /** Takes over what an earlier node gave. */
  adopt(id: string, cpus: number, processors: readonly number[]): void {
    const share = { processors, each: cpus / Math.max(1, processors.length) };
    this.#shares.set(id, share);
    this.#add(share, 1);
  }

  /** Safe twice, and for unknown ids. */
  release(id: string): void {
    const share = this.#shares.get(id);
    if (share === undefined) return;
    this.#shares.delete(id);
    this.#add(share, -1);
  }

  #add({ processors, each }: Share, sign: 1 | -1): void {
    for (const number of processors) {
      const before = this.#promised.get(number);
      // A processor that is not there any more needs no count.
      if (before !== undefined) this.#promised.set(number, before + sign * each);
    }
  }
}

/** The processors that this process may use, with what live sandboxes hold of them. */
export function openProcessors(runDirs: RunDirs): Processors {
  const allowed = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1] ?? "0";
  const processors = new Processors(parseProcessorList(allowed));
  for (const id of runDirs.list()) {
    const record = runDirs.readAgent(id as SandboxId);
    if (record !== undefined && isAlive(record))
      processors.adopt(id, record.cpus, parseProcessorList(record.processors));
  }
  return processors;
}

/** `0-2,5` */
export function processorList(numbers: readonly number[]): string {
  const ranges: { first: number; last: number }[] = [];
  for (const number of numbers) {
    const range = ranges.at(-1);
    if (range !== undefined && number === range.last + 1) range.last = number;
    else ranges.push({ first: number, last: number });
  }
  return ranges.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** The numbers of a list such as `0-2,5`. */
export function parseProcessorList(list: string): readonly number[] {
  return list.split(",").flatMap((part) => {
    const [first = 0, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });
}
