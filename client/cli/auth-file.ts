import { readFileSync } from "node:fs";
import { CliError, hasCode } from "./cli-error.ts";

/** A name and a password as a server takes them. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Docker Hub by its old name, which `docker login` still writes. */
const DOCKER_HUB = "https://index.docker.io/v1/";

/**
 * What a file of `podman login` or `docker login` has for a place: for `host/team/app`, for `host/team` or for `host`, the first
 * that is there. Throws `CliError` when the file cannot be read, has nothing, or names a helper program instead.
 */
export function credentialsFor(file: string, place: string): Credentials {
  const auths = authsOf(file);
  for (const key of keysOf(place)) {
    const found = auths[key];
    if (found !== undefined) return decoded(file, key, found);
  }
  throw new CliError("NotFound", `${file} has no credentials for ${place}`, {
    hint: "podman login --authfile writes them",
  });
}

function keysOf(place: string): readonly string[] {
  const parts = place.split("/");
  const isHost = /[.:]/.test(parts[0] ?? "") || parts[0] === "localhost";
  const whole = isHost ? parts : ["docker.io", ...parts];
  const keys = whole.map((_, index) => whole.slice(0, whole.length - index).join("/"));
  return whole[0] === "docker.io" ? [...keys, DOCKER_HUB] : keys;
}

function authsOf(file: string): Readonly<Record<string, unknown>> {
  try {
    const { auths } = JSON.parse(readFileSync(file, "utf8")) as { readonly auths?: Readonly<Record<string, unknown>> };
    return auths ?? {};
  } catch (error) {
    if (!(error instanceof SyntaxError) && !hasCode(error, "ENOENT", "EACCES", "EISDIR", "ENOTDIR")) throw error;
    throw new CliError("InvalidArgument", `${file} cannot be read as a file of credentials`, { cause: error });
  }
}

function decoded(file: string, key: string, entry: unknown): Credentials {
  const auth = entry !== null && typeof entry === "object" && "auth" in entry ? entry.auth : undefined;
  const text = typeof auth === "string" ? Buffer.from(auth, "base64").toString("utf8") : "";
  const colon = text.indexOf(":");
  if (colon <= 0) {
    throw new CliError("FailedPrecondition", `${file} has no name and password for ${key}`, {
      hint: "a helper program keeps them: podman login --authfile OTHER-FILE writes them into a file",
    });
  }
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}
