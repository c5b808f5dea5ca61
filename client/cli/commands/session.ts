import { DsecError, type Session } from "#sdk";
import { seeThrough } from "../foreground.ts";
import { Interrupts } from "../interrupts.ts";
import { ageText, type CliContext, print, table } from "../io.ts";
import { bytesOrText } from "../words.ts";

/** Options of `session run`. */
export interface RunLineOptions {
  readonly timeLimit?: number;
}

/** Runs a line in a session, which is opened when it is not there; the exit status is the line's. */
export async function runLine(
  context: CliContext,
  id: string,
  name: string,
  words: readonly string[],
  options: RunLineOptions,
): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  using interrupts = new Interrupts(context.io);
  const start = (session: Session) =>
    session.start(bytesOrText(words.join(" ")), {
      stdin: "pipe",
      signal: interrupts.signal,
      ...(options.timeLimit === undefined ? {} : { timeLimitMs: options.timeLimit }),
    });
  const line = await start(sandbox.openedSession(name)).catch(async (error: unknown) => {
    // Gone or never there: a sandbox that does not exist says so at the next step.
    if (!(error instanceof DsecError) || !["NotFound", "FailedPrecondition"].includes(error.kind)) throw error;
    return await start(await sandbox.session({ name, signal: interrupts.signal }));
  });
  const status = await seeThrough(context, line, interrupts);
  if ((await line.wait()).status.sessionEnded === true)
    context.io.stderr.write(`dsec: the session ${name} has ended\n`);
  return status;
}

/** Lists the sessions of a sandbox. */
export async function listSessions(context: CliContext, id: string): Promise<number> {
  const client = await context.connect({ start: false });
  const sessions = await client.sandboxes.use(id).sessions();
  const rows = sessions.map(({ name, pid, startedAtMs, status }) => [
    name,
    String(pid),
    ageText(Date.now() - startedAtMs),
    status === undefined ? "lives" : status.cause,
  ]);
  print(context, sessions, () => table(["NAME", "PID", "AGE", "STATE"], rows));
  return 0;
}

/** Ends sessions, with everything that they started. */
export async function removeSessions(context: CliContext, id: string, names: readonly string[]): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  for (const name of names) await sandbox.openedSession(name).remove();
  return 0;
}
