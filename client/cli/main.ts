import { type Away, Client } from "#sdk";
import { exitStatusOfError } from "./exit-status.ts";
import { type Io, passedOn, printable } from "./io.ts";
import { type HostCommand, runProgram } from "./program.ts";

/** Where an apiserver is and what proves who asks. */
export interface Endpoint {
  readonly url: string;
  readonly token: string | undefined;
}

/** What the command line needs from whoever wires it. */
export interface CliParts {
  readonly argv: readonly string[];
  readonly io: Io;
  readonly version: string;
  readonly hostCommands: readonly HostCommand[];
  /** Finds the apiserver; with `start`, starts a node on this machine when there is none. */
  endpoint(options: { readonly start: boolean }): Promise<Endpoint>;
}

/** Connections that break and stand again at once are nobody's concern. */
const TELL_AWAY_MS = 2_000;

/** The whole command line: resolves to the exit status; failures are printed as one line and a hint. */
export async function runCli(parts: CliParts): Promise<number> {
  const { io } = parts;
  // A reader that went away is noticed where it is written to; it must not end the process before the sandbox is removed.
  io.stdout.on("error", () => undefined);
  io.stderr.on("error", () => undefined);
  const clients: Client[] = [];
  const connect = async (options: { readonly start: boolean }) => {
    const client = new Client({ ...(await parts.endpoint(options)), onAway: awayTeller(io) });
    clients.push(client);
    return client;
  };
  try {
    const status = await runProgram(parts.argv, {
      version: parts.version,
      hostCommands: parts.hostCommands,
      context: ({ json }) => ({ io, json, connect }),
    });
    await passedOn(io.stdout);
    return status;
  } catch (error) {
    io.stderr.write(errorText(error));
    return exitStatusOfError(error);
  } finally {
    for (const client of clients) client.close();
  }
}

/** Says once for each absence that the server is away: a person who waits should know for what. */
function awayTeller(io: Io): (away: Away) => void {
  let told = false;
  return ({ error, awayMs, limitMs }) => {
    if (awayMs === 0) told = false;
    if (told || awayMs < TELL_AWAY_MS) return;
    told = true;
    // A terminal that passes every key on does not return by itself.
    const end = io.terminal === undefined ? "\n" : "\r\n";
    io.stderr.write(
      `dsec: ${printable(error.message)}; waiting for it, ${Math.round(limitMs / 1_000)} s at most${end}`,
    );
  };
}

/** One line that says what failed, and a line with what to do next when somebody knows. */
export function errorText(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const hint = error instanceof Error && "hint" in error && typeof error.hint === "string" ? error.hint : undefined;
  // Errors that somebody foresaw have a kind, whichever part they come from.
  const foreseen = error instanceof Error && "kind" in error;
  const line = `dsec: ${foreseen ? "" : "unexpected: "}${printable(message)}\n`;
  return hint === undefined ? line : `${line}hint: ${printable(hint)}\n`;
}
