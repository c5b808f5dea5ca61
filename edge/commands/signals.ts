import { constants } from "node:os";
import { SandboxError } from "#core/errors.ts";

/** Real-time signals have no names of their own: the kernel and glibc agree to count from the first that programs may use. */
const RTMIN = 34;
const RTMAX = 64;

/** The number of a signal by name (`SIGTERM`, `TERM`, `SIGRTMIN+3`, `SIGRTMAX-1`) or number. Throws `InvalidArgument` for any other text. */
export function signalNumber(text: string): number {
  const number = /^\d{1,2}$/.test(text) ? Number(text) : numberOf(text.replace(/^SIG/, ""));
  if (number !== undefined && number >= 1 && number <= RTMAX) return number;
  throw new SandboxError("InvalidArgument", `no signal is called ${JSON.stringify(text.slice(0, 40))}`, {
    hint: "SIGINT, SIGTERM, SIGKILL, …, SIGRTMIN+1, or a number from 1 to 64",
  });
}

function numberOf(name: string): number | undefined {
  const known = Object.entries(constants.signals).find(([full]) => full === `SIG${name}`);
  if (known !== undefined) return known[1];
  const [, base, offset] = /^(RTMIN(?=\+|$)|RTMAX(?=-|$))(?:[+-](\d{1,2}))?$/.exec(name) ?? [];
  if (base === undefined) return undefined;
  const number = base === "RTMIN" ? RTMIN + Number(offset ?? 0) : RTMAX - Number(offset ?? 0);
  return number >= RTMIN ? number : undefined;
}
