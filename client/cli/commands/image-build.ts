import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { buildImage } from "#build/build.ts";
import { BuildContext } from "#build/context.ts";
import type { TreeKind } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, print, printable } from "../io.ts";

/** Options of `image build` with a Dockerfile. */
export interface BuildFileOptions {
  readonly tag: string;
  readonly file?: string;
  readonly buildArg?: Readonly<Record<string, string>>;
  readonly cache: boolean;
  readonly kind?: TreeKind;
}

/** Builds an image from a Dockerfile; progress and what steps write go to stderr. */
export async function buildFile(context: CliContext, directory: string, options: BuildFileOptions): Promise<number> {
  const dockerfile = readText(options.file ?? join(directory, "Dockerfile"));
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw new CliError("InvalidArgument", `${directory} is no directory`, {
      hint: "dsec image build -t NAME DIRECTORY",
    });
  }
  const client = await context.connect({ start: true });
  using interrupts = new Interrupts(context.io);
  const { stderr } = context.io;
  try {
    const artifact = await buildImage({
      ...{ client, dockerfile, context: new BuildContext(directory), name: options.tag, sandbox: {} },
      kind: options.kind ?? "snapshot",
      ...{ buildArgs: options.buildArg ?? {}, noCache: !options.cache, signal: interrupts.signal },
      onProgress: (line) => stderr.write(`${printable(line)}\n`),
      onOutput: (bytes) => stderr.write(bytes),
    });
    print(context, artifact, () => `${artifact.name}:${artifact.tag}\n`);
    return 0;
  } catch (error) {
    if (interrupts.left === undefined) throw error;
    return interrupts.left;
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "EISDIR", "ENOTDIR")) throw error;
    throw new CliError("NotFound", `${file} cannot be read`, { cause: error, hint: "name the file with -f" });
  }
}
