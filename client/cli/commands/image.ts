import type { ArtifactView, TreeKind } from "#sdk";
import { ageText, bytesText, type CliContext, print, printable, table } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Options of `image build`. */
export interface BuildOptions {
  readonly label?: Readonly<Record<string, string>>;
  readonly debian?: string;
  readonly include?: string;
  readonly vm?: boolean;
  readonly desktop?: boolean;
}

/** Builds a Debian base with progress on stderr. */
export async function build(context: CliContext, name: string, options: BuildOptions): Promise<number> {
  const client = await context.connect({ start: true });
  const include = options.include?.split(",").filter((word) => word !== "");
  const artifact = await client.artifacts.build(
    {
      name,
      ...(options.vm === true ? { kind: "vm-image" } : {}),
      ...(options.desktop === true ? { desktop: true } : {}),
      ...(options.debian === undefined ? {} : { suite: options.debian }),
      ...(include === undefined ? {} : { include }),
      ...(options.label === undefined ? {} : { labels: options.label }),
    },
    { onProgress: (line) => context.io.stderr.write(`${printable(line)}\n`) },
  );
  print(context, artifact, () => `${titleOf(artifact)}\n`);
  return 0;
}

/** The catalogue, or what of it carries the labels. */
export async function list(
  context: CliContext,
  { label: labels }: { readonly label?: Readonly<Record<string, string>> },
): Promise<number> {
  const client = await context.connect({ start: false });
  const artifacts = await client.artifacts.list(compact({ labels }));
  print(context, artifacts, () => table(["NAME", "KIND", "SIZE", "LAYERS", "AGE"], artifacts.map(rowOf)));
  return 0;
}

/** One artifact, as JSON in either form. */
export async function info(context: CliContext, name: string): Promise<number> {
  const client = await context.connect({ start: false });
  const artifact = await client.artifacts.info(name);
  context.io.stdout.write(`${JSON.stringify(artifact, undefined, context.json ? undefined : 2)}\n`);
  return 0;
}

/** Options of `image gc`. */
export interface GcOptions {
  readonly dryRun?: boolean;
}

/** Removes what nothing needs; prints the layers that went. A dry run prints those that would go, and on stderr what that would free. */
export async function gc(context: CliContext, options: GcOptions): Promise<number> {
  const client = await context.connect({ start: false });
  const garbage = await client.artifacts.collect(options);
  const { layers, bytes } = garbage;
  print(context, garbage, () => layers.map((layer) => `${layer}\n`).join(""));
  if (bytes !== undefined && !context.json) context.io.stderr.write(`dsec: ${bytesText(bytes)} would be freed\n`);
  return 0;
}

/** Removes what no tag and no node needs from the store that nodes share; a dry run counts it. */
export async function gcStore(context: CliContext, options: GcOptions): Promise<number> {
  const client = await context.connect({ start: false });
  const removed = await client.nodes.collectStore(options);
  const { artifacts, layers, blobs, bytes } = removed;
  print(context, removed, () => `${artifacts} artifacts, ${layers} layers, ${blobs} blobs, ${bytesText(bytes)}\n`);
  return 0;
}

/** Makes another tag mean an artifact. */
export async function tag(
  context: CliContext,
  source: string,
  target: string,
  options: { readonly shared?: boolean },
): Promise<number> {
  const client = await context.connect({ start: false });
  const artifact = await client.artifacts.tag(source, { target, ...options });
  print(context, artifact, () => `${titleOf(artifact)}\n`);
  return 0;
}

/** Makes an artifact of another kind of an artifact's layers. */
export async function derive(
  context: CliContext,
  source: string,
  target: string,
  { kind, over }: { readonly kind: TreeKind; readonly over?: string },
): Promise<number> {
  const client = await context.connect({ start: false });
  const artifact = await client.artifacts.derive(source, { target, kind, ...(over === undefined ? {} : { over }) });
  print(context, artifact, () => `${titleOf(artifact)}\n`);
  return 0;
}

/** Puts an artifact into the store that nodes share, or takes it from there. */
export async function transfer(context: CliContext, direction: "push" | "pull", name: string): Promise<number> {
  const client = await context.connect({ start: direction === "pull" });
  const artifact = await client.artifacts[direction](name);
  print(context, artifact, () => `${titleOf(artifact)} ${artifact.digest}\n`);
  return 0;
}

/** Takes artifacts out of the catalogue. */
export async function rm(context: CliContext, names: readonly string[]): Promise<number> {
  const client = await context.connect({ start: false });
  for (const name of names) await client.artifacts.remove(name);
  print(context, names, () => names.map((name) => `${name}\n`).join(""));
  return 0;
}

function titleOf({ name, tag, digest }: ArtifactView): string {
  return tag === undefined ? `${name}@${digest}` : `${name}:${tag}`;
}

function rowOf(artifact: ArtifactView): string[] {
  const age = ageText(Date.now() - artifact.createdAtMs);
  return [titleOf(artifact), artifact.kind, bytesText(artifact.sizeBytes), String(artifact.layers.length), age];
}
