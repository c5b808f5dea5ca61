import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { basename } from "node:path";
import type { CallOptions, Client } from "#sdk";
import { CliError, hasCode } from "./cli-error.ts";
import type { SpecOptions } from "./spec-options.ts";
import { tarDirectory } from "./tar-directory.ts";

/**
 * The name of the workspace artifact for what the person wrote. A directory is imported first, under a name made from its
 * path and its place. Layers are content-addressed: one that has not changed costs its upload and stores nothing new.
 */
export async function workspaceName(
  client: Client,
  { workspace, workspaceAt: at }: Pick<SpecOptions, "workspace" | "workspaceAt">,
  options: CallOptions,
): Promise<string | undefined> {
  if (workspace === undefined || !isDirectoryPath(workspace)) {
    if (at === undefined) return workspace;
    throw new CliError(
      "InvalidArgument",
      "--workspace-at goes with a directory that is imported: --workspace ./DIRECTORY",
      {
        hint: "an artifact begins where it was imported to: dsec image import --at PATH",
      },
    );
  }
  const path = existingPath(workspace);
  const place = at === undefined ? {} : { at };
  // The same directory at two places is two artifacts.
  const name = directoryName(path, at === undefined ? path : `${path}\0${at}`);
  await client.artifacts.import(tarDirectory(path), { ...options, ...place, name, kind: "workspace", format: "tar" });
  return name;
}

/** True for what names a directory of this machine rather than an artifact. */
function isDirectoryPath(workspace: string): boolean {
  return /^(\/|\.{1,2}(\/|$))/.test(workspace);
}

/** `dir-` and the directory's name, as far as artifact names allow, with a digest of `identity`. */
function directoryName(path: string, identity: string): string {
  const label = basename(path)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 40);
  const digest = createHash("sha256").update(identity).digest("hex").slice(0, 12);
  return label === "" ? `dir-${digest}` : `dir-${label}-${digest}`;
}

function existingPath(directory: string): string {
  try {
    return realpathSync(directory);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR", "EACCES", "ELOOP")) throw error;
    throw new CliError("NotFound", `the workspace ${directory} cannot be reached`, {
      cause: error,
      hint: "check the path",
    });
  }
}
