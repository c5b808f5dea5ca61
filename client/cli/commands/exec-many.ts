import type { Ran } from "#sdk";
import { CliError } from "../cli-error.ts";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { lineOf, resultJson } from "../foreground.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, type Io, printable } from "../io.ts";
import { Progress } from "../progress.ts";
import { compact } from "../spec-options.ts";
import type { ExecOptions } from "./exec.ts";

/** Exit status when every command ran and some did not exit with 0. */
const SOME_FAILED = 1;

/**
 * A command in every sandbox that carries the labels. Each line of output stands behind the id of its sandbox; as JSON there is
 * one line for each sandbox. 0 when every command exited with 0, 1 when one did not, 125 when one could not be run.
 */
export async function execMany(
  context: CliContext,
  argv: readonly string[],
  options: ExecOptions & { readonly label: Record<string, string>; readonly concurrency?: number },
): Promise<number> {
  if (options.detach === true) throw new CliError("InvalidArgument", "--detach does not go with --label");
  const { io } = context;
  using interrupts = new Interrupts(io);
  const { signal } = interrupts;
  const client = await context.connect({ start: false });
  const { env, user, workdir: cwd, timeLimit: timeLimitMs, concurrency, label: labels } = options;
  const start = compact({ env, user, cwd, timeLimitMs, concurrency, signal });
  let status = 0;
  try {
    const views = await Array.fromAsync(client.sandboxes.list({ labels, signal }));
    if (views.length === 0)
      throw new CliError("NotFound", "no sandbox carries these labels", { hint: "dsec ls shows what there is" });
    using progress = new Progress(io, views.length);
    const sandboxes = views.map(({ id }) => client.sandboxes.use(id));
    for await (const ran of client.sandboxes.runMany(sandboxes, lineOf(argv, options), start)) {
      progress.clear();
      if (context.json) io.stdout.write(`${JSON.stringify(jsonOf(ran))}\n`);
      else show(io, ran);
      const ok = "result" in ran && ran.result.ok;
      progress.count(ok);
      if (!ok) status = Math.max(status, "result" in ran ? SOME_FAILED : PLATFORM_FAILURE);
    }
  } catch (error) {
    if (interrupts.left !== undefined) return interrupts.left;
    throw error;
  }
  return status;
}

function jsonOf(ran: Ran): unknown {
  const { id } = ran.sandbox;
  return "result" in ran ? { sandbox: id, ...resultJson(ran.result) } : { sandbox: id, error: ran.error.message };
}

function show({ stdout, stderr }: Io, ran: Ran): void {
  const { id } = ran.sandbox;
  if ("error" in ran) {
    stderr.write(`${id}: dsec: ${printable(ran.error.message)}\n`);
    return;
  }
  const { result } = ran;
  stdout.write(labelled(id, result.stdoutText));
  stderr.write(labelled(id, result.stderrText));
  if (!result.ok) stderr.write(`${id}: dsec: ${endOf(ran.result.status)}\n`);
}

/** One process of a sandbox must not pass its lines off as another's: only the line's end ends it. */
function labelled(id: string, text: string): string {
  const lines = text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
  return text === "" ? "" : lines.map((line) => `${id}: ${printable(line)}\n`).join("");
}

function endOf({ cause, code, signal }: { cause: string; code?: number; signal?: string }): string {
  if (code !== undefined) return `exit status ${code}`;
  return signal === undefined ? cause : `${cause} by ${signal}`;
}
