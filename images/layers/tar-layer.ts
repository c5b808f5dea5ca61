import { badInput } from "#core/tar/entry.ts";
import { TarReader } from "#core/tar/reader.ts";
import { decompressed } from "../archive/decompress.ts";
import { sha256 } from "../digest.ts";
import { type BuildLayerOptions, type BuiltLayer, buildLayer } from "./layer.ts";

/** See `BuildLayerOptions`. */
export interface TarLayerOptions extends BuildLayerOptions {
  /** Hex SHA-256 that the plain archive must have. */
  readonly expectedSha256?: string;
}

/** One layer of one tar stream, plain or compressed. Rejects as `importArtifact` does. */
export function tarLayer(options: TarLayerOptions, source: AsyncIterable<Uint8Array>): Promise<BuiltLayer> {
  const running = options.expectedSha256 === undefined ? undefined : sha256();
  return buildLayer(options, async ({ builder, drain }) => {
    const reader = new TarReader(builder);
    for await (const piece of decompressed(source)) {
      running?.update(piece);
      reader.push(piece);
      await drain();
    }
    reader.finish();
    if (running !== undefined && running.hex() !== options.expectedSha256) {
      throw badInput("a layer of the image does not have the digest that its config names", "fetch the image again");
    }
  });
}
