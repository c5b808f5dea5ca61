import type { ArtifactView } from "#sdk";
import { type NamedSource, namedSource, type SourceOptions } from "../image-source.ts";
import { type CliContext, print, printable } from "../io.ts";

/** Options of `image import`. */
export interface ImportOptions extends SourceOptions {
  readonly kind?: ArtifactView["kind"];
  readonly at?: string;
  readonly label?: Readonly<Record<string, string>>;
}

/** Imports what a word names: something of this machine, or something that the node fetches, with progress on stderr. */
export async function importArtifact(
  context: CliContext,
  word: string,
  name: string,
  options: ImportOptions,
): Promise<number> {
  const named = namedSource(word, options);
  const client = await context.connect({ start: true });
  const kind = options.kind ?? usualKind(named);
  const words = { name, kind, labels: options.label ?? {}, ...(options.at === undefined ? {} : { at: options.at }) };
  const onProgress = (line: string) => context.io.stderr.write(`${printable(line)}\n`);
  const artifact =
    named.from === "here"
      ? await client.artifacts.import(named.archive.bytes, { ...words, format: named.archive.format })
      : await client.artifacts.importFrom({ ...words, source: named.source }, { onProgress });
  print(context, artifact, () => `${artifact.name}:${artifact.tag}\n`);
  return 0;
}

/** What such a source most often is. */
function usualKind(named: NamedSource): ArtifactView["kind"] {
  const type = named.from === "node" ? named.source.type : named.isRepository ? "git" : named.archive.format;
  if (type === "git") return "workspace";
  return type === "apt" || type === "deb" ? "toolkit" : "base";
}
