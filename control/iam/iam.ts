import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { StateStore } from "../state/store.ts";
import { bearer, newToken, sameHash, tokenHash } from "./token.ts";

/** Who asks. `admin` acts in every project, `member` in its own. */
export interface Principal {
  readonly name: string;
  readonly project: string;
  readonly role: Role;
}
/** How far the rights of a principal reach. */
export type Role = "admin" | "member";

/** `use`: anything with things of the project. `operate`: look after nodes, which have no project. */
export type Action = "use" | "operate";

/** The project that exists from the first start. */
export const DEFAULT_PROJECT = "default";

const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;

/** Principals, projects and tokens, kept in the state store. Hashes of tokens are kept, never tokens. */
export class Iam {
  readonly #state: StateStore;
  readonly #clock: Clock;

  constructor(state: StateStore, clock: Clock) {
    this.#state = state;
    this.#clock = clock;
  }

  /** Makes the default project and its root on an empty store; the root's token then, undefined on every later start. */
  async bootstrap(): Promise<string | undefined> {
    if ((await this.#state.list("token/", { limit: 1 })).length > 0) return undefined;
    await this.createProject(DEFAULT_PROJECT).catch(unlessKind("AlreadyExists"));
    return this.createToken({ name: "root", project: DEFAULT_PROJECT, role: "admin" });
  }

  /** Throws `AlreadyExists`, or `InvalidArgument` for a name that is none. */
  async createProject(name: string): Promise<void> {
    if (!NAME.test(name)) {
      throw new SandboxError("InvalidArgument", `${JSON.stringify(name)} is no project name`, {
        hint: "1 to 63 of a-z, 0-9 and -, not starting with -",
      });
    }
    const record = JSON.stringify({ createdAtMs: this.#clock.now() });
    if ((await this.#state.put(`project/${name}`, record, "absent")) === undefined) {
      throw new SandboxError("AlreadyExists", `there is a project ${name} already`);
    }
  }

  /** A new token for the principal. Throws `NotFound` when its project does not exist. */
  async createToken(principal: Principal): Promise<string> {
    if ((await this.#state.get(`project/${principal.project}`)) === undefined) {
      throw new SandboxError("NotFound", `no project ${principal.project}`);
    }
    const token = newToken();
    const hash = tokenHash(token);
    if (hash === undefined) throw new Error("a new token has an unexpected form");
    const { name, project, role } = principal;
    const record: TokenRecord = { hash, name, project, role, createdAtMs: this.#clock.now() };
    await this.#state.put(`token/${hash}`, JSON.stringify(record), "absent");
    return token;
  }

  /** The token stops working with the next call. Success when it did not work before. */
  async revokeToken(token: string): Promise<void> {
    const hash = tokenHash(token);
    if (hash !== undefined) await this.#state.delete(`token/${hash}`, "any");
  }

  /** Who an Authorization header stands for. Throws `Unauthenticated`, without saying which part was wrong. */
  async authenticate(header: string | undefined): Promise<Principal> {
    const token = bearer(header);
    const hash = token === undefined ? undefined : tokenHash(token);
    const entry = hash === undefined ? undefined : await this.#state.get(`token/${hash}`);
    const record = entry === undefined ? undefined : (JSON.parse(entry.value) as TokenRecord);
    if (hash === undefined || record === undefined || !sameHash(record.hash, hash)) {
      throw new SandboxError("Unauthenticated", header === undefined ? "no token was sent" : "the token is not valid", {
        hint: "send the header Authorization: Bearer TOKEN; a node writes its first token to its token file",
      });
    }
    return { name: record.name, project: record.project, role: record.role };
  }
}

/** May the principal do it to things of `project`? */
export function allows(principal: Principal, action: Action, project: string): boolean {
  return principal.role === "admin" || (action === "use" && principal.project === project);
}

/** Throws `PermissionDenied` unless `allows`. What must not be known to exist answers `NotFound` instead: see callers. */
export function authorize(principal: Principal, action: Action, project: string): void {
  if (allows(principal, action, project)) return;
  throw new SandboxError("PermissionDenied", `${principal.name} may not do this in project ${project}`, {
    hint: action === "operate" ? "this needs an admin's token" : "use a token of that project",
  });
}

interface TokenRecord extends Principal {
  readonly hash: string;
  readonly createdAtMs: number;
}

function unlessKind(kind: SandboxError["kind"]): (error: unknown) => void {
  return (error) => {
    if (!(error instanceof SandboxError) || error.kind !== kind) throw error;
  };
}
