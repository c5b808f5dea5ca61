import type { CellFile } from "#core/cells.ts";
import type { FunctionRun, FunctionStatus } from "#core/functions.ts";

/** What a compiler made, or why it made nothing. */
export interface Compiled {
  readonly run: FunctionRun;
  readonly outputs: readonly CellFile[];
  readonly status: Exclude<FunctionStatus, "compile-error">;
  /** False: the compiler refused the code. */
  readonly accepted: boolean;
}

/** The same for everybody who sends the same: a result that another try might not have is not kept. */
export interface Compilation extends Compiled {
  readonly lasting: boolean;
}

/**
 * What compilers made, by what they were given, at most so many bytes; the least used go first. Calls with the same key share one
 * compilation.
 */
export class CompileCache {
  readonly #limitBytes: number;
  /** The last is the one used last. */
  readonly #kept = new Map<string, { readonly compiled: Compiled; readonly bytes: number }>();
  readonly #underWay = new Map<string, Promise<Compilation>>();
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** `cached`: somebody else paid for it. A compilation that rejects is nobody's, and each caller tries again. */
  async get(key: string, compile: () => Promise<Compilation>): Promise<Compiled & { readonly cached: boolean }> {
    const kept = this.#kept.get(key);
    if (kept !== undefined) {
      this.#kept.delete(key);
      this.#kept.set(key, kept);
      return { ...kept.compiled, cached: true };
    }
    const underWay = this.#underWay.get(key);
    if (underWay !== undefined) {
      const joined = await underWay.catch(() => undefined);
      return joined === undefined ? this.get(key, compile) : { ...joined, cached: true };
    }
    const made = compile();
    this.#underWay.set(key, made);
    try {
      const { lasting, ...compiled } = await made;
      if (lasting) this.#keep(key, compiled);
      return { ...compiled, cached: false };
    } finally {
      if (this.#underWay.get(key) === made) this.#underWay.delete(key);
    }
  }

  #keep(key: string, compiled: Compiled): void {
    const outputs = [compiled.run.stdout, compiled.run.stderr, ...compiled.outputs.map((file) => file.bytes)];
    const bytes = outputs.reduce((sum, { length }) => sum + length, 1024);
    if (bytes > this.#limitBytes || this.#kept.has(key)) return;
    this.#kept.set(key, { compiled, bytes });
    this.#bytes += bytes;
    for (const [oldest, { bytes: freed }] of this.#kept) {
      if (this.#bytes <= this.#limitBytes) return;
      this.#kept.delete(oldest);
      this.#bytes -= freed;
    }
  }
}
