import { createHash } from "node:crypto";
import type { PackedDiff, PackOptions } from "#core/packing.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { FakeSandbox } from "./host.ts";

/** A diff as a real backend tells of one. Patterns are taken for names; the layer is nowhere. */
export function packFake({ spec, files }: FakeSandbox, { exclude }: PackOptions): PackedDiff {
  const kept: string[] = [];
  const hash = createHash("sha256");
  let dataBytes = 0;
  for (const path of files.paths()) {
    if (exclude.some((name) => path.split("/").includes(name))) continue;
    const stat = files.stat(Buffer.from(path));
    kept.push(path);
    hash.update(`${path}\0`);
    dataBytes += stat.size;
  }
  const layer = `sha256:${hash.digest("hex")}` as LayerDigest;
  const skipped = { excluded: files.paths().length - kept.length, scrubbed: 0, special: 0 };
  const { config } = spec;
  const layers = [...spec.layers, layer];
  return { layers, config, sizeBytes: dataBytes, layer, entries: kept.length, dataBytes, frozenMs: 0, skipped };
}
