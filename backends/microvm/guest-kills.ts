import { MAX_OOM_VICTIMS, type OomVictim } from "#core/usage.ts";
import type { MachineControl } from "#guest/protocol/machine.ts";
import { OomRecords, parseRecord } from "#host/cgroup/oom-log.ts";

/** The cgroup of the sandbox in its machine, which is its id for the records. */
const CGROUP = "sandbox";
/** A guest may tell of as many kills as it likes: so many records are read at a time. */
const MOST_RECORDS = 4 * MAX_OOM_VICTIMS;

/** Where the log of a guest's kernel is read. */
type KernelLog = Pick<MachineControl, "nextKill">;

/**
 * Which processes of a machine's sandbox were killed for want of memory, from the log of its kernel. It is read on when there were more than before, also
 * by the machine that goes on after a pause.
 */
export class GuestKills {
  readonly #records = new OomRecords(`/(${CGROUP})`);
  #known = 0;
  #lastNumber = 0;
  /** The last who reads: who comes later waits. */
  #turn: Promise<void> = Promise.resolve();

  /** Oldest first; `oomKills`: how many the kernel has counted. Rejects as the machine does. */
  async victims(log: KernelLog, oomKills: number): Promise<readonly OomVictim[]> {
    const reading = this.#turn.then(() => this.#read(log, oomKills));
    this.#turn = reading.catch(() => undefined);
    await reading;
    return this.#records.victims(CGROUP);
  }

  async #read(log: KernelLog, oomKills: number): Promise<void> {
    if (oomKills <= this.#known) return;
    for (let records = 0; records < MOST_RECORDS; records += 1) {
      const next = await log.nextKill(this.#lastNumber);
      if (next === undefined) break;
      const number = Number(/^\d+,(\d{1,15}),/.exec(next.record)?.[1]);
      // One that does not go on is no log of a kernel.
      if (!(number > this.#lastNumber)) break;
      this.#lastNumber = number;
      const record = parseRecord(next.record);
      if (record !== undefined) this.#records.take(record, Date.now() - next.sinceBootMs);
    }
    this.#known = oomKills;
  }
}
