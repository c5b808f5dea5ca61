import type { TreeKind, VmImageOptions } from "#sdk";
import { fileBytes } from "../archive.ts";
import { CliError } from "../cli-error.ts";
import { type NamedSource, namedSource, type SourceOptions } from "../image-source.ts";
import { type CliContext, print, printable } from "../io.ts";

/** Options of `image import`. */
export interface ImportOptions extends SourceOptions {
  readonly kind?: TreeKind;
  readonly vm?: boolean;
  readonly firmware?: NonNullable<VmImageOptions["firmware"]>;
  readonly devices?: NonNullable<VmImageOptions["devices"]>;
  readonly agent?: boolean;
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
  if (options.vm === true) return await importVmImage(context, word, name, options);
  if (options.firmware !== undefined || options.devices !== undefined || options.agent !== undefined) {
    throw new CliError("InvalidArgument", "--firmware, --devices and --agent go only with --vm", { hint: "add --vm" });
  }
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
function usualKind(named: NamedSource): TreeKind {
  const type = named.from === "node" ? named.source.type : named.isRepository ? "git" : named.archive.format;
  if (type === "git") return "workspace";
  return type === "apt" || type === "deb" ? "toolkit" : "base";
}

/** The file of a disk or a CD. */
async function importVmImage(
  context: CliContext,
  file: string,
  name: string,
  { label, firmware, devices, agent, ...others }: ImportOptions,
): Promise<number> {
  const other = ["kind", "at", "format", "authFile", "insecure"].find((key) => key in others);
  if (other !== undefined) {
    throw new CliError("InvalidArgument", `--vm does not go with --${other === "authFile" ? "auth-file" : other}`, {
      hint: "leave it out",
    });
  }
  const bytes = fileBytes(file);
  const client = await context.connect({ start: true });
  const artifact = await client.artifacts.importVmImage(bytes, {
    name,
    ...(firmware && { firmware }),
    ...(devices && { devices }),
    ...(agent && { agent }),
    ...(label && { labels: label }),
  });
  print(context, artifact, () => `${artifact.name}:${artifact.tag}\n`);
  return 0;
}
