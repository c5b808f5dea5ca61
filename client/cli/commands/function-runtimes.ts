import { type CliContext, print, printable, table } from "../io.ts";

/** What programs can be written in. */
export async function list(context: CliContext): Promise<number> {
  const client = await context.connect({ start: true });
  const runtimes = await client.functions.runtimes();
  const rows = runtimes.map(({ name, base, ready, limits }) => [
    name,
    base,
    ready ? "ready" : "made at the first call",
    `${limits.runMs} ms`,
    `${limits.memoryMiB} MiB`,
  ]);
  print(context, runtimes, () => table(["NAME", "BASE", "STATE", "TIME", "MEMORY"], rows));
  return 0;
}

/** Makes a runtime's base with progress on stderr. */
export async function prepare(context: CliContext, name: string): Promise<number> {
  const client = await context.connect({ start: true });
  const runtime = await client.functions.prepare(name, {
    onProgress: (line) => context.io.stderr.write(`${printable(line)}\n`),
  });
  print(context, runtime, () => `${runtime.name} is ready\n`);
  return 0;
}
