import { guestDirOf } from "#backends/microvm/config.ts";
import { machineFact } from "#backends/microvm/doctor.ts";
import { lendingFact } from "#backends/microvm/lender.ts";
import { flag } from "#core/setting-kinds.ts";
import { defineSettings } from "#core/settings.ts";
import type { HostFact } from "#host/probe/fact.ts";
import { probeHost } from "#host/probe/probe.ts";
import type { Places } from "./config.ts";
import { built, SESSION_SHELL } from "./programs.ts";

const loadWords = defineSettings("DSEC_DOCTOR", { json: flag(false, "The facts as JSON.") });
/** The first user that sandboxes use unless an operator says otherwise. */
const FIRST_UID = 0x0800_0000;
const MARKS: Readonly<Record<HostFact["state"], string>> = { works: "ok     ", partial: "partly ", missing: "MISSING" };

/** Prints each capability of this host: whether it works, why it matters, how to get it. Succeeds whatever it finds. */
export async function doctor(argv: readonly string[], places: Places, sink: NodeJS.WritableStream): Promise<number> {
  const { json } = loadWords({ argv });
  const programs = { agent: built("dsec-agent"), cradle: built("dsec-cradle"), shell: SESSION_SHELL };
  const guestDir = guestDirOf({ guestDir: undefined }, places.dataDir);
  const machines = await machineFact({ guestDir, programs, uid: FIRST_UID });
  const memory = await lendingFact(built("dsec-lend.so"));
  const facts = [...(await probeHost({ dataDir: places.dataDir })), machines, memory];
  sink.write(json ? `${JSON.stringify(facts)}\n` : facts.map(textOf).join(""));
  return 0;
}

function textOf(fact: HostFact): string {
  const head = `${MARKS[fact.state]} ${fact.name}: ${fact.detail}\n`;
  if (fact.state === "works") return head;
  return `${head}        why it matters: ${fact.why}\n        how to get it: ${fact.how}\n`;
}
