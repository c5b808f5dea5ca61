import { createHash, randomBytes } from "node:crypto";
import type { Clock } from "#core/clock.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Principal } from "./iam/iam.ts";
import type { Entry, StateStore } from "./state/store.ts";

const PREFIX = "port-pass/";
/** Long enough for a browser to be opened with it. */
const TICKET_MS = 60_000;
/** A working day: whoever comes back the next one asks for another ticket. */
const PASS_MS = 12 * 3_600_000;
const SWEEP_PAGE = 500;
const SECRET_BYTES = 32;
const SECRET = /^[A-Za-z0-9_-]{43}$/;

/** The one port that a ticket or a pass opens. */
export interface PassScope {
  readonly sandbox: SandboxId;
  readonly port: number;
}

interface PassRecord extends PassScope {
  readonly kind: "ticket" | "pass";
  readonly principal: Principal;
  readonly expiresAtMs: number;
}

/** A secret, and until when it works. */
export interface IssuedPass {
  readonly secret: string;
  readonly expiresAtMs: number;
}

/**
 * What lets a browser, which sends no token, to one port of one sandbox: a ticket that works once and soon becomes a pass, which
 * the browser keeps as a cookie. Hashes are stored, never secrets; any apiserver knows them.
 */
export class PortPasses {
  readonly #state: StateStore;
  readonly #clock: Clock;

  constructor(state: StateStore, clock: Clock) {
    this.#state = state;
    this.#clock = clock;
  }

  /** A ticket in the name of the principal. */
  issueTicket(principal: Principal, scope: PassScope): Promise<IssuedPass> {
    return this.#issue({ kind: "ticket", principal, ...scope, expiresAtMs: this.#clock.now() + TICKET_MS });
  }

  /** The pass for a ticket, which is used up then; undefined when it was, has expired, or opens another port. */
  async redeem(ticket: string, scope: PassScope): Promise<IssuedPass | undefined> {
    const found = await this.#find("ticket", ticket, scope);
    if (found === undefined) return undefined;
    const { key, revision } = found.entry;
    // Of those who come with one ticket at once, one writes over what all have read.
    const used = JSON.stringify({ ...found.record, expiresAtMs: 0 });
    if ((await this.#state.put(key, used, revision)) === undefined) return undefined;
    await this.#state.delete(key, "any");
    const { principal } = found.record;
    return this.#issue({ kind: "pass", principal, ...scope, expiresAtMs: this.#clock.now() + PASS_MS });
  }

  /** In whose name the pass opens the port; undefined when it does not. */
  async principalOf(pass: string, scope: PassScope): Promise<Principal | undefined> {
    return (await this.#find("pass", pass, scope))?.record.principal;
  }

  /** Deletes what has expired, in small steps. */
  async sweep(): Promise<void> {
    for (let after: string | undefined; ; ) {
      const page = await this.#state.list(PREFIX, { limit: SWEEP_PAGE, ...(after === undefined ? {} : { after }) });
      for (const entry of page) {
        if (recordOf(entry).expiresAtMs <= this.#clock.now()) await this.#state.delete(entry.key, entry.revision);
      }
      after = page.at(-1)?.key;
      if (page.length < SWEEP_PAGE) return;
    }
  }

  async #issue(record: PassRecord): Promise<IssuedPass> {
    const secret = randomBytes(SECRET_BYTES).toString("base64url");
    await this.#state.put(keyOf(secret), JSON.stringify(record), "absent");
    return { secret, expiresAtMs: record.expiresAtMs };
  }

  async #find(
    kind: PassRecord["kind"],
    secret: string,
    { sandbox, port }: PassScope,
  ): Promise<{ readonly entry: Entry; readonly record: PassRecord } | undefined> {
    const entry = SECRET.test(secret) ? await this.#state.get(keyOf(secret)) : undefined;
    if (entry === undefined) return undefined;
    const record = recordOf(entry);
    const fits = record.kind === kind && record.sandbox === sandbox && record.port === port;
    return fits && record.expiresAtMs > this.#clock.now() ? { entry, record } : undefined;
  }
}

function keyOf(secret: string): string {
  return PREFIX + createHash("sha256").update(secret).digest("hex");
}

function recordOf({ value }: Entry): PassRecord {
  return JSON.parse(value) as PassRecord;
}
