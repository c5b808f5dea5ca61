import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { basename } from "node:path";
import type { CallOptions, Client } from "#sdk";
import { CliError, hasCode } from "./cli-error.ts";
import { tarDirectory } from "./tar-directory.ts";

/**
 * The name of the workspace artifact for what the person wrote. A directory is imported first, under a name made from its
 * path. Layers are content-addressed: one that has not changed costs its upload and stores nothing new.
 */
export async function workspaceName(
  client: Client,
  workspace: string | undefined,
  options: CallOptions,
): Promise<string | undefined> {
  if (workspace === undefined || !isDirectoryPath(workspace)) return workspace;
  const path = existingPath(workspace);
  const name = directoryName(path);
  await client.artifacts.import(tarDirectory(path), { ...options, name, kind: "workspace", format: "tar" });
  return name;
}

/** True for what names a directory of this machine rather than an artifact. */
function isDirectoryPath(workspace: string): boolean {
  return /^(\/|\.{1,2}(\/|$))/.test(workspace);
}

/** `dir-` and the directory's name, as far as artifact names allow, with a digest of the whole path. */
function directoryName(path: string): string {
  const label = basename(path)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 40);
  const digest = createHash("sha256").update(path).digest("hex").slice(0, 12);
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
