import type { ImportFromRequest } from "#sdk";
import { type Archive, archiveOf } from "./archive.ts";
import { credentialsFor } from "./auth-file.ts";
import { CliError } from "./cli-error.ts";
import { gitArchive } from "./git-archive.ts";

/** What may be said about a source. */
export interface SourceOptions {
  readonly format?: "tar" | "oci" | "deb";
  readonly authFile?: string;
  readonly insecure?: boolean;
}

/** Where an artifact comes from: something that the node fetches, or bytes of this machine. */
export type NamedSource =
  | { readonly from: "node"; readonly source: ImportFromRequest["source"] }
  | { readonly from: "here"; readonly archive: Archive; readonly isRepository: boolean };

/** Begins the name of an image in a registry. */
export const REGISTRY = "docker://";

/** Begins a list of Debian packages. */
const PACKAGES = "apt:";

/** What the word of a command line means as a source. Throws `CliError` for options that mean nothing with it. */
export function namedSource(word: string, options: SourceOptions): NamedSource {
  if (word.startsWith(REGISTRY)) {
    refuse(options, "format", "--format", "files and directories");
    return { from: "node", source: registryImage(word.slice(REGISTRY.length), options) };
  }
  if (word.startsWith(PACKAGES)) return packagesOf(word.slice(PACKAGES.length), options);
  if (/^git(\+https?)?:\/\//.test(word)) return gitSource(word, options);
  refuse(options, "authFile", "--auth-file", "registries and repositories");
  refuse(options, "insecure", "--insecure", "registries");
  if (word.startsWith("git:")) {
    refuse(options, "format", "--format", "files and directories");
    const { place, revision = "HEAD" } = revisionOf(word.slice("git:".length));
    return { from: "here", archive: { bytes: gitArchive(place, revision), format: "tar" }, isRepository: true };
  }
  return { from: "here", archive: archiveOf(word, options.format), isRepository: false };
}

/** An image in a registry and how to get at it. Throws `CliError` when the file of credentials has none for it. */
export function registryImage(image: string, options: Omit<SourceOptions, "format">) {
  const [repository = ""] = image.replace(/@.*/, "").split(/:(?=[^/]*$)/);
  const credentials = options.authFile === undefined ? undefined : credentialsFor(options.authFile, repository);
  const insecure = options.insecure === true ? { insecure: true } : {};
  return { type: "registry", image, ...insecure, ...(credentials && { credentials }) } as const;
}

function packagesOf(text: string, options: SourceOptions): NamedSource {
  refuse(options, "format", "--format", "files and directories");
  refuse(options, "authFile", "--auth-file", "registries and repositories");
  refuse(options, "insecure", "--insecure", "registries");
  const { place, revision: suite } = revisionOf(text);
  return { from: "node", source: { type: "apt", packages: place.split(","), ...(suite && { suite }) } };
}

function gitSource(word: string, options: SourceOptions): NamedSource {
  refuse(options, "format", "--format", "files and directories");
  refuse(options, "insecure", "--insecure", "registries");
  const { place, revision } = revisionOf(word.replace(/^git\+/, ""));
  const host = URL.canParse(place) ? new URL(place).host : "";
  const credentials = options.authFile === undefined ? undefined : credentialsFor(options.authFile, host);
  const source = {
    type: "git",
    url: place,
    ...(revision && { revision }),
    ...(credentials && { credentials }),
  } as const;
  return { from: "node", source };
}

function revisionOf(text: string): { readonly place: string; readonly revision: string | undefined } {
  const at = text.lastIndexOf("#");
  return at === -1 ? { place: text, revision: undefined } : { place: text.slice(0, at), revision: text.slice(at + 1) };
}

function refuse(options: SourceOptions, key: keyof SourceOptions, name: string, owners: string): void {
  if (options[key] === undefined) return;
  throw new CliError("InvalidArgument", `${name} means nothing for this source`, { hint: `it is for ${owners}` });
}
