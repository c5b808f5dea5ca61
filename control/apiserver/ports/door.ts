import type { IncomingMessage } from "node:http";
import { SandboxError } from "#core/errors.ts";
import { parseSandboxId } from "#core/ids.ts";
import type { Principal } from "../../iam/iam.ts";
import type { PassScope } from "../../port-passes.ts";
import type { Services } from "../handler.ts";
import { authorizationOf } from "../upgrade.ts";
import { checkPort, type PortAddress } from "./address.ts";
import { PASS_COOKIE, passIn } from "./cookies.ts";

/** The part of a query that is a ticket; the server in the sandbox never sees it. */
const TICKET = /([?&])dsec-ticket=([^&]*)(?:&|$)/;
/** How the header of a token of this platform begins; another one is the application's. */
const TOKEN = /^bearer +dsec_/i;

type DoorServices = Pick<Services, "iam" | "passes">;

/** A ticket becomes a pass: where to go then, and the cookie to take. */
export interface Entry {
  readonly location: string;
  readonly cookie: string;
}

/**
 * Who asks for a port. A token counts everywhere; on a host of its own also the pass that a browser has for it, but only for
 * requests that pages of that very host make, or that a person makes by following a link.
 */
export async function callerOf(
  { iam, passes }: DoorServices,
  request: IncomingMessage,
  address: PortAddress,
): Promise<Principal> {
  const authorization = authorizationOf(request);
  const pass = address.form === "host" && !TOKEN.test(authorization ?? "") ? passIn(request.headers.cookie) : undefined;
  if (pass === undefined) return iam.authenticate(authorization);
  const principal = await passes.principalOf(pass, scopeOf(address));
  if (principal === undefined) {
    throw new SandboxError("Unauthenticated", "the pass for this port has expired", { hint: "ask for a new ticket" });
  }
  refuseStrangers(request);
  return principal;
}

/** Redeems the ticket in the query, when there is one. Throws `Unauthenticated` for one that does not work. */
export async function enter(
  { passes }: DoorServices,
  request: IncomingMessage,
  address: PortAddress,
): Promise<Entry | undefined> {
  const ticket = address.form === "host" ? TICKET.exec(address.path)?.[2] : undefined;
  if (ticket === undefined || request.method !== "GET") return undefined;
  const pass = await passes.redeem(ticket, scopeOf(address));
  if (pass === undefined) {
    throw new SandboxError("Unauthenticated", "the ticket does not work: it is used up, expired or of another port", {
      hint: "ask for a new ticket",
    });
  }
  // A path that begins with two slashes, of either kind, would name another host.
  const location = address.path
    .replace(TICKET, "$1")
    .replace(/[?&]$/, "")
    .replace(/^[/\\]+/, "/");
  const cookie = `${PASS_COOKIE}=${pass.secret}; Path=/; Secure; HttpOnly; SameSite=Lax`;
  return { location, cookie };
}

function scopeOf(address: PortAddress): PassScope {
  return { port: checkPort(address), sandbox: parseSandboxId(address.sandbox) };
}

/** Other sandboxes are on the same site: cookies alone do not tell their pages from this host's own. */
function refuseStrangers({ headers, method }: IncomingMessage): void {
  const site = headers["sec-fetch-site"];
  // A frame in a page of another host navigates too.
  const whole = (headers["sec-fetch-dest"] ?? "document") === "document";
  const navigates = headers["sec-fetch-mode"] === "navigate" && whole && (method === "GET" || method === "HEAD");
  const fromElsewhere = site !== undefined && site !== "same-origin" && site !== "none" && !navigates;
  const { origin } = headers;
  const otherOrigin = origin !== undefined && URL.parse(origin)?.host !== headers.host;
  if (!fromElsewhere && !otherOrigin) return;
  throw new SandboxError("PermissionDenied", "a page of another host asks in the name of this browser", {
    hint: "send a token instead of the cookie",
  });
}
