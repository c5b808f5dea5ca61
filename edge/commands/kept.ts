import type { CommandRow, CommandRows } from "#edge/commands/rows.ts";

/** Ended commands whose record and output a sandbox keeps; beyond it the oldest go, a batch at a time. */
const KEPT_COMMANDS = 10_000;
const PRUNED_AT_ONCE = 500;
/** The same for what was asked of them, all together: one command may have megabytes of arguments. */
const KEPT_SPEC_BYTES = 256 * 1024 * 1024;

/** The rows of a sandbox's commands, and how much they are. */
export class KeptCommands {
  readonly #rows: CommandRows;
  #recorded = 0;
  #specBytes = 0;

  constructor(rows: CommandRows) {
    this.#rows = rows;
  }

  get recorded(): number {
    return this.#recorded;
  }

  /** Takes over what an earlier process recorded. */
  restore({ commands, specBytes }: { readonly commands: number; readonly specBytes: number }): void {
    this.#recorded = commands;
    this.#specBytes = specBytes;
  }

  insert(row: CommandRow): void {
    this.#specBytes += this.#rows.insert(row);
    this.#recorded += 1;
  }

  delete(number: number): void {
    this.#specBytes -= this.#rows.delete(number);
    this.#recorded -= 1;
  }

  /** The oldest that have ended, as long as more are kept than should be: whoever takes one deletes it, or leaves it. */
  *surplus(): Generator<Pick<CommandRow, "number" | "id" | "keptBytes">, void, undefined> {
    if (this.#recorded < KEPT_COMMANDS && this.#specBytes < KEPT_SPEC_BYTES) return;
    const [mostRecorded, mostBytes] = [KEPT_COMMANDS - PRUNED_AT_ONCE, (KEPT_SPEC_BYTES / 4) * 3];
    for (const row of this.#rows.oldestEnded(PRUNED_AT_ONCE)) {
      if (this.#recorded <= mostRecorded && this.#specBytes <= mostBytes) return;
      yield row;
    }
  }
}
