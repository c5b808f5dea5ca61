/**
 * The one list of error kinds. A kind says what the caller can do about it; adding one means deciding its HTTP status
 * and its retry here, nowhere else. Message: what this layer was doing. `hint`: what to do next. `cause`: the lower
 * error, never repeated in the message. `details`: facts a program may act on, safe to show to the caller.
 */
export const ERROR_KINDS = {
  InvalidArgument: { status: 400, retry: "never" },
  Unauthenticated: { status: 401, retry: "never" },
  PermissionDenied: { status: 403, retry: "never" },
  NotFound: { status: 404, retry: "never" },
  AlreadyExists: { status: 409, retry: "never" },
  FailedPrecondition: { status: 412, retry: "never" },
  QuotaExceeded: { status: 403, retry: "never" },
  TooLarge: { status: 413, retry: "never" },
  /** The program named by a command does not exist in the sandbox: exit status 127 of a shell. */
  CommandNotFound: { status: 422, retry: "never" },
  /** The program exists and cannot be run: exit status 126 of a shell. */
  CommandNotExecutable: { status: 422, retry: "never" },
  /** The sandbox's own disk, memory or process limit refused the operation. */
  SandboxLimit: { status: 409, retry: "never" },
  /** The sandbox died, or its agent did, while the operation was under way. */
  SandboxLost: { status: 410, retry: "never" },
  /** The server at a port of the sandbox takes no connections, broke off, or does not speak what was asked of it. */
  PortFailed: { status: 502, retry: "backoff" },
  /** The edge refused a stale placement. */
  NodeFull: { status: 507, retry: "elsewhere" },
  /** The store or the volume of the node is full. */
  StorageFull: { status: 507, retry: "elsewhere" },
  /** Too many wait already. The detail `retryAfterMs` says when it is worth another try. */
  Overloaded: { status: 429, retry: "backoff" },
  DeadlineExceeded: { status: 504, retry: "backoff" },
  Cancelled: { status: 499, retry: "never" },
  Unavailable: { status: 503, retry: "backoff" },
  Internal: { status: 500, retry: "never" },
} as const satisfies Record<string, { status: number; retry: Retry }>;

/** When the same call may succeed: never as it is, on another node, or here after a while. */
export type Retry = "never" | "elsewhere" | "backoff";
export type ErrorKind = keyof typeof ERROR_KINDS;
/** Plain facts about an error, by name. */
export type ErrorDetails = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** What an error may carry besides its kind and message. */
export interface ErrorOptions {
  readonly hint?: string;
  readonly cause?: unknown;
  readonly details?: ErrorDetails;
}

/** An error a user can cause or must act on. Programmer errors stay plain `Error`s. */
export class SandboxError extends Error {
  readonly kind: ErrorKind;
  readonly hint: string | undefined;
  readonly details: ErrorDetails;

  constructor(kind: ErrorKind, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "SandboxError";
    this.kind = kind;
    this.hint = options.hint;
    this.details = options.details ?? {};
  }

  get retry(): Retry {
    return ERROR_KINDS[this.kind].retry;
  }
}

/** How an error crosses a wire (node API, HTTP body). The cause stays behind, in the log of the side that made it. */
export interface WireError {
  readonly kind: ErrorKind;
  readonly message: string;
  readonly hint?: string;
  readonly details?: ErrorDetails;
}

/** Any thrown value as a `SandboxError`; what nobody typed becomes `Internal` with the original as its cause. */
export function asSandboxError(error: unknown): SandboxError {
  if (error instanceof SandboxError) return error;
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return new SandboxError("DeadlineExceeded", "the call's deadline passed", { cause: error });
  }
  if (error instanceof Error && error.name === "AbortError") {
    return new SandboxError("Cancelled", "the caller gave up", { cause: error });
  }
  return new SandboxError("Internal", "an unexpected fault", { cause: error, hint: "see the node's log" });
}

/** Any thrown value in the form that crosses a wire, without its cause. */
export function toWire(error: unknown): WireError {
  const typed = asSandboxError(error);
  return {
    kind: typed.kind,
    message: typed.message,
    ...(typed.hint === undefined ? {} : { hint: typed.hint }),
    ...(Object.keys(typed.details).length === 0 ? {} : { details: typed.details }),
  };
}

/** The error that a peer sent. A kind that this side does not know becomes `Internal`. */
export function fromWire(wire: WireError): SandboxError {
  const kind: ErrorKind = wire.kind in ERROR_KINDS ? wire.kind : "Internal";
  return new SandboxError(kind, wire.message, {
    ...(wire.hint === undefined ? {} : { hint: wire.hint }),
    ...(wire.details === undefined ? {} : { details: wire.details }),
  });
}

/** True for a system error with one of these codes (`ENOENT`, …): catch what you expect, rethrow the rest. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code);
}
