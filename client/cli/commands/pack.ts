import type { PackOptions, PackView } from "#sdk";
import { bytesText, type CliContext, print } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Options of `pack`. */
export interface PackCliOptions {
  readonly exclude?: readonly string[];
  readonly keep?: PackOptions["keep"];
  readonly label?: Readonly<Record<string, string>>;
  readonly asItRuns?: true;
}

/** Makes a snapshot: its name on stdout, what is in it on stderr. */
export async function pack(context: CliContext, id: string, name: string, options: PackCliOptions): Promise<number> {
  const client = await context.connect({ start: false });
  const { exclude, keep, label: labels, asItRuns } = options;
  const consistent = asItRuns === true ? false : undefined;
  const packed = await client.sandboxes.use(id).packDiff({ name, ...compact({ exclude, keep, labels, consistent }) });
  print(context, packed, () => `${packed.artifact.name}:${packed.artifact.tag}\n`);
  if (!context.json) context.io.stderr.write(`dsec: ${factsOf(packed)}\n`);
  return 0;
}

function factsOf({ entries, bytes, frozenMs, skipped }: PackView): string {
  const left = Object.entries(skipped)
    .filter(([, count]) => count > 0)
    .map(([what, count]) => `, ${count} ${what} left out`);
  return `${entries} entries of ${bytesText(bytes)}, held still for ${Math.ceil(frozenMs)} ms${left.join("")}`;
}
