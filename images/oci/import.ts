import type { ImageConfig, ImageNotes, LayerDigest } from "#core/sandbox.ts";
import { badInput } from "#core/tar/entry.ts";
import { interruptible } from "../archive/source.ts";
import { typedStorageErrors } from "../durable.ts";
import type { BuildLayerOptions } from "../layers/layer.ts";
import { checkStack, withoutRepeats } from "../layers/stack.ts";
import { tarLayer } from "../layers/tar-layer.ts";
import type { LayerTree } from "../layers/tree.ts";
import type { ImageFiles } from "./files.ts";
import type { Document } from "./json.ts";
import { hostArchitecture, selectImage } from "./select.ts";
import { spool } from "./spool.ts";

/** What an image became; see `ImportedArtifact`. */
export interface OciImport {
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  readonly sizeBytes: number;
  readonly entries: number;
  readonly skippedDevices: number;
}

/** Which image, and how the import is followed. */
export interface OciChoice {
  readonly reference?: string;
  readonly signal?: AbortSignal;
  /** Called before each layer. */
  readonly onLayer?: (number: number, count: number) => void;
}

/** Imports the image of an archive that fits this host. See `importArtifact` for what it rejects with. */
export async function importOci(
  options: BuildLayerOptions,
  source: AsyncIterable<Uint8Array>,
  choice: OciChoice,
): Promise<OciImport> {
  await using scratch = await options.store.scratch();
  const files = await typedStorageErrors(() => spool(scratch.dir, source, options.limits.dataBytes));
  return await importImage(options, files, choice);
}

/** Imports the image of a layout that fits this host, each layer by itself. Rejects as `importOci` does. */
export async function importImage(
  options: BuildLayerOptions,
  files: ImageFiles,
  choice: OciChoice,
): Promise<OciImport> {
  const plan = await selectImage(files, choice.reference);
  checkStack(plan.layers.length, "the image");
  const config = imageConfig(plan.config);
  const signal = choice.signal ?? new AbortController().signal;
  const layers: LayerDigest[] = [];
  let lower: LayerTree | undefined;
  let [sizeBytes, dataBytes, entries, skippedDevices] = [0, 0, 0, 0];
  for (const [index, { path, sha256 }] of plan.layers.entries()) {
    choice.onLayer?.(index + 1, plan.layers.length);
    const { limits: whole } = options;
    const limits = { ...whole, entries: whole.entries - entries, dataBytes: whole.dataBytes - dataBytes };
    const built = await tarLayer(
      {
        ...options,
        limits,
        ...(lower === undefined ? {} : { lower }),
        ...(sha256 === undefined ? {} : { expectedSha256: sha256 }),
      },
      interruptible(files.stream(path), signal),
    );
    layers.push(built.digest);
    lower = built.tree;
    sizeBytes += built.sizeBytes;
    dataBytes += built.dataBytes;
    entries += built.tree.entries;
    skippedDevices += built.skippedDevices;
  }
  return { layers: withoutRepeats(layers), config, sizeBytes, entries, skippedDevices };
}

/** What running in the image needs to know; refuses an image of another processor. */
function imageConfig(config: Document): ImageConfig {
  const [os, architecture] = [config.text("os") ?? "linux", config.text("architecture") ?? hostArchitecture()];
  if (os !== "linux" || architecture !== hostArchitecture()) {
    throw badInput(`the image is for ${os}/${architecture}, and this host is linux/${hostArchitecture()}`);
  }
  const run = config.object("config");
  const env: Record<string, string> = {};
  for (const pair of run?.texts("Env") ?? []) {
    const equals = pair.indexOf("=");
    if (equals > 0) env[pair.slice(0, equals)] = pair.slice(equals + 1);
  }
  const image = run === undefined ? {} : notesOf(run);
  return {
    env,
    user: run?.text("User") || undefined,
    workdir: run?.text("WorkingDir") || undefined,
    ...(Object.keys(image).length === 0 ? {} : { image }),
  };
}

function notesOf(run: Document): ImageNotes {
  const labels = run.object("Labels")?.textFields() ?? {};
  const [command, entrypoint] = [run.texts("Cmd"), run.texts("Entrypoint")];
  return {
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(command.length === 0 ? {} : { command }),
    ...(entrypoint.length === 0 ? {} : { entrypoint }),
  };
}
