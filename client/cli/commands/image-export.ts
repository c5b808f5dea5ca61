import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { finished } from "node:stream/promises";
import type { Client } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { REGISTRY, registryImage } from "../image-source.ts";
import { type CliContext, print, printable, writeTo } from "../io.ts";

/** Options of `image export`. */
export interface ExportOptions {
  readonly output?: string;
  readonly to?: string;
  readonly compression?: "gzip" | "zstd" | "none";
  readonly authFile?: string;
  readonly insecure?: boolean;
}

/** Writes an artifact as an OCI image: to a file, which is there whole or not at all, to stdout, or into a registry. */
export async function exportArtifact(context: CliContext, name: string, options: ExportOptions): Promise<number> {
  const { output, to } = options;
  if ((output === undefined) === (to === undefined)) {
    throw new CliError("InvalidArgument", "say where the image goes", {
      hint: "either --output FILE or --to docker://IMAGE",
    });
  }
  if (to !== undefined && !to.startsWith(REGISTRY)) {
    throw new CliError("InvalidArgument", `${to} is no image in a registry`, {
      hint: "--to docker://registry.example.org/app:v1",
    });
  }
  if (output !== undefined && (options.authFile !== undefined || options.insecure !== undefined)) {
    throw new CliError("InvalidArgument", "--auth-file and --insecure are for registries", {
      hint: "leave them out, or use --to",
    });
  }
  const client = await context.connect({ start: false });
  if (to !== undefined) return await toRegistry(context, client, name, { ...options, to });
  return output === "-"
    ? await toStdout(context, client, name, options)
    : await toFile(client, name, output ?? "", options);
}

async function toRegistry(
  context: CliContext,
  client: Client,
  name: string,
  options: ExportOptions & { readonly to: string },
) {
  const target = registryImage(options.to.slice(REGISTRY.length), options);
  const { compression } = options;
  const exported = await client.artifacts.exportTo(
    name,
    { ...target, ...(compression && { compression }) },
    { onProgress: (line) => context.io.stderr.write(`${printable(line)}\n`) },
  );
  print(context, { exported }, () => `${exported}\n`);
  return 0;
}

async function toStdout({ io }: CliContext, client: Client, name: string, options: ExportOptions): Promise<number> {
  for await (const bytes of client.artifacts.export(name, archiveOptions(options))) {
    if (!(await writeTo(io.stdout, bytes))) break;
  }
  return 0;
}

async function toFile(client: Client, name: string, output: string, options: ExportOptions): Promise<number> {
  const unfinished = `${output}.unfinished`;
  try {
    const file = createWriteStream(unfinished);
    const written = finished(file);
    written.catch(() => undefined);
    for await (const bytes of client.artifacts.export(name, archiveOptions(options))) {
      if (!(await writeTo(file, bytes))) break;
    }
    file.end();
    await written;
    await rename(unfinished, output);
    return 0;
  } catch (error) {
    await rm(unfinished, { force: true });
    if (!hasCode(error, "ENOENT", "EACCES", "ENOSPC", "EISDIR", "ENOTDIR", "EROFS", "EDQUOT")) throw error;
    throw new CliError("FailedPrecondition", `${output} cannot be written`, { cause: error });
  }
}

function archiveOptions({ compression }: ExportOptions) {
  return compression === undefined ? {} : { compression };
}
