import { type Static, Type } from "typebox";
import { MAX_OOM_VICTIMS } from "#core/usage.ts";
import { ErrorBody } from "./errors.ts";
import { closed, described, oneOf } from "./values.ts";

const Count = Type.Integer({ minimum: 0 });
const Time = Type.Number({ minimum: 0 });

/** What one sandbox uses at one moment, counted from its creation, beside its limits. What the node does not count is absent. */
export const UsageView = closed({
  id: Type.String(),
  atMs: Type.Number(),
  cpu: closed({
    totalMs: Time,
    userMs: Time,
    systemMs: Time,
    throttledMs: described(Time, "How long it was held back by its limit."),
  }),
  memory: closed({
    bytes: described(Count, "With page cache and files of /dev/shm, as the limit counts it."),
    peakBytes: described(Count, "Highest so far; 0 where the kernel does not keep it."),
    swapBytes: Count,
  }),
  oomKills: described(Count, "Processes killed because there was no memory left."),
  oomVictims: Type.Array(
    closed({
      program: described(Type.String(), "As the kernel has it: 15 bytes of the program's name."),
      atMs: Type.Number(),
      residentBytes: described(Count, "What it held when it was killed."),
      full: oneOf(["sandbox", "node"], "Whose memory had run out."),
    }),
    { maxItems: MAX_OOM_VICTIMS, description: "The last of them that the kernel's log tells of, oldest first." },
  ),
  pids: described(Count, "Processes and threads now."),
  diskBytes: Type.Optional(described(Count, "Written and not removed.")),
  io: Type.Optional(
    closed({
      readBytes: described(Count, "Fetched from storage."),
      writeBytes: described(Count, "Meant for storage."),
      readCalls: described(Count, "Reads of any kind, pipes and sockets included."),
      writeCalls: described(Count, "Writes of any kind, pipes and sockets included."),
    }),
  ),
  network: Type.Optional(
    closed({ receivedBytes: Count, receivedPackets: Count, sentBytes: Count, sentPackets: Count }),
  ),
  machine: Type.Optional(
    closed({
      privateBytes: described(Count, "Memory of the node that its machine has for itself."),
      sharedBytes: described(Count, "Pages of files that its machine maps, which the node holds once for all that do."),
    }),
  ),
  limits: closed({
    cpus: Type.Number(),
    memoryBytes: Count,
    swapBytes: Count,
    pids: Count,
    diskBytes: Type.Optional(Count),
  }),
  commands: closed({ running: Count, recorded: described(Count, "Those whose record is kept.") }),
});
export type UsageView = Static<typeof UsageView>;

/** One line of a stream of usage: a sample, or why there will be none any more. */
export const UsageEvent = Type.Union([UsageView, ErrorBody]);

/** How often to sample. */
export const UsageQuery = closed({
  periodMs: Type.Optional(Type.Integer({ minimum: 100, maximum: 3_600_000, description: "1000 unless given." })),
});
