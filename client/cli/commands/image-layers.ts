import type { LayerView } from "#sdk";
import { bytesText, type CliContext, print, table } from "../io.ts";

/** Where the data of an artifact's layers is. */
export async function layers(context: CliContext, name: string): Promise<number> {
  const client = await context.connect({ start: false });
  const found = await client.artifacts.layers(name);
  print(context, found, () => table(["LAYER", "STATE", "MOUNTED", "SIZE", "HERE", "HITS"], found.map(rowOf)));
  return 0;
}

function rowOf(layer: LayerView): string[] {
  const { digest, state, mounted, sizeBytes, presentBytes, hits, misses } = layer;
  const reads = hits + misses;
  const rate = reads === 0 ? "-" : `${Math.round((100 * hits) / reads)}%`;
  const short = digest.slice(0, "sha256:".length + 12);
  return [short, state, mounted ? "yes" : "no", bytesText(sizeBytes), bytesText(presentBytes), rate];
}
