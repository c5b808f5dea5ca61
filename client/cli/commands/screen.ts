import { writeFileSync } from "node:fs";
import { CliError, hasCode } from "../cli-error.ts";
import { type CliContext, print, writeTo } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Options of `screen`. */
export interface ScreenOptions {
  readonly output: string;
  readonly settled?: number;
  readonly wait?: number;
  readonly tolerance?: number;
}

/** Writes a PNG of the screen to a file or to stdout. */
export async function screen(context: CliContext, id: string, options: ScreenOptions): Promise<number> {
  const { output, settled: settledMs, wait: waitMs, tolerance } = options;
  if ((waitMs ?? tolerance) !== undefined && settledMs === undefined) {
    throw new CliError("InvalidArgument", "--wait and --tolerance mean nothing without --settled", {
      hint: "add --settled 1s",
    });
  }
  const client = await context.connect({ start: false });
  const { png, settled } = await client.sandboxes
    .use(id)
    .computer.screenshot(compact({ settledMs, waitMs, tolerance }));
  if (!settled) context.io.stderr.write("dsec: the screen was still changing\n");
  if (output === "-") {
    await writeTo(context.io.stdout, png);
    return 0;
  }
  try {
    writeFileSync(output, png);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "EISDIR", "ENOTDIR", "ENOSPC", "EROFS")) throw error;
    throw new CliError("FailedPrecondition", `${output} cannot be written`, { cause: error, hint: "check the path" });
  }
  print(context, { file: output, bytes: png.length, settled }, () => "");
  return 0;
}
