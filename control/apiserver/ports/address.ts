import { SandboxError } from "#core/errors.ts";

/** Which port of which sandbox a request is for, and what it asks of the server there. */
export interface PortAddress {
  /** Not checked yet. */
  readonly sandbox: string;
  readonly port: number;
  /** What goes before `path` in the URL of the request. */
  readonly prefix: string;
  /** For the server in the sandbox: path and query, byte for byte as they came. */
  readonly path: string;
}

const PATH = /^(\/v1\/sandboxes\/([^/?#]+)\/ports\/(\d+))(?:(\/.*)|(\?.*))?$/s;

/** Reads a URL of the form `/v1/sandboxes/{id}/ports/{port}/…`; undefined for every other. */
export function pathAddress(url: string): PortAddress | undefined {
  const match = PATH.exec(url);
  if (match === null) return undefined;
  const [, prefix = "", sandbox = "", port = "", path, query] = match;
  return { sandbox, port: Number(port), prefix, path: path ?? `/${query ?? ""}` };
}

/** Throws `InvalidArgument` for a number that is no port. */
export function checkPort({ port }: PortAddress): number {
  if (port >= 1 && port <= 65_535) return port;
  throw new SandboxError("InvalidArgument", "port must be a number from 1 to 65535", { details: { field: "port" } });
}
