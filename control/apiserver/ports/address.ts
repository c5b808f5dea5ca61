import type { IncomingMessage } from "node:http";
import { SandboxError } from "#core/errors.ts";

/** Which port of which sandbox a request is for, and what it asks of the server there. */
export interface PortAddress {
  /** `path`: below the origin of the API. `host`: on an origin of its own, `{port}-{id}.DOMAIN`. */
  readonly form: "path" | "host";
  /** Not checked yet; empty when the host names no port. */
  readonly sandbox: string;
  readonly port: number;
  /** What goes before `path` in the URL of the request. */
  readonly prefix: string;
  /** For the server in the sandbox: path and query, byte for byte as they came. */
  readonly path: string;
}

const PATH = /^(\/v1\/sandboxes\/([^/?#]+)\/ports\/(\d+))(?:(\/.*)|(\?.*))?$/s;
const LABEL = /^(\d{1,5})-([a-z0-9-]+)$/;

/**
 * Reads what a request is for; undefined when it is for the API. Below `domain` everything is for ports, also what names none: the
 * API must not answer in the origin of a sandbox.
 */
export function portAddress(
  { url = "", headers }: Pick<IncomingMessage, "url" | "headers">,
  domain: string | undefined,
): PortAddress | undefined {
  const label = domain === undefined ? undefined : labelBelow(domain, headers.host ?? "");
  if (label === undefined) return pathAddress(url);
  const [, port = "0", sandbox = ""] = LABEL.exec(label) ?? [];
  // An absolute form names the host again; the path behind it is what the server is asked.
  const path = url.startsWith("/") ? url : url.replace(/^[a-z]+:\/\/[^/?#]*\/?/i, "/");
  return { form: "host", sandbox, port: Number(port), prefix: "", path };
}

function pathAddress(url: string): PortAddress | undefined {
  const match = PATH.exec(url);
  if (match === null) return undefined;
  const [, prefix = "", sandbox = "", port = "", path, query] = match;
  return { form: "path", sandbox, port: Number(port), prefix, path: path ?? `/${query ?? ""}` };
}

/** What stands before the domain; undefined for other hosts. */
function labelBelow(domain: string, host: string): string | undefined {
  const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
  if (name === domain) return "";
  return name.endsWith(`.${domain}`) ? name.slice(0, -domain.length - 1) : undefined;
}

/** Throws `InvalidArgument` for a number that is no port, `NotFound` for a host that names none. */
export function checkPort({ form, sandbox, port }: PortAddress): number {
  if (form === "host" && sandbox === "") {
    throw new SandboxError("NotFound", "this host names no port of a sandbox", {
      hint: "use {port}-{id} before the domain",
    });
  }
  if (port >= 1 && port <= 65_535) return port;
  throw new SandboxError("InvalidArgument", "port must be a number from 1 to 65535", { details: { field: "port" } });
}
