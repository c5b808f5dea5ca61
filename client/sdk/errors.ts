import type { ErrorBody, ErrorDetails, ErrorKind, Retry } from "#api/index.ts";

/** What may come with an error. */
export interface DsecErrorOptions {
  readonly hint?: string | undefined;
  readonly details?: ErrorDetails | undefined;
  /** When the same call may succeed; `never` unless said otherwise. */
  readonly retry?: Retry | undefined;
  readonly cause?: unknown;
}

/**
 * Every error of this library. `kind` is stable and says what happened, `hint` what to do next, `retry` when the same call
 * may succeed. A command that ends, however badly, is never an error: it is a `Result`.
 */
export class DsecError extends Error {
  readonly kind: ErrorKind;
  readonly hint: string | undefined;
  readonly details: ErrorDetails;
  readonly retry: Retry;

  constructor(kind: ErrorKind, message: string, options: DsecErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.kind = kind;
    this.hint = options.hint;
    this.details = options.details ?? {};
    this.retry = options.retry ?? "never";
  }
}

/** The connection failed or broke: whether the call took effect is unknown, unless it was one that can be repeated. */
export class TransportError extends DsecError {
  constructor(message: string, options: DsecErrorOptions = {}) {
    super("Unavailable", message, { retry: "backoff", ...options });
  }
}

/** Nothing exists under that name or id, or it belongs to another project. */
export class NotFoundError extends DsecError {}

/** The program does not exist in the sandbox (`CommandNotFound`) or cannot be run (`CommandNotExecutable`). */
export class CommandStartError extends DsecError {}

/** The sandbox died while it was used. */
export class SandboxLostError extends DsecError {}

/** No room: on any node now (`NodeFull`, `StorageFull`, `Overloaded`), or within the project's quota (`QuotaExceeded`). */
export class NoRoomError extends DsecError {}

/** Bytes in the middle of an output were dropped to hold its cap; `details.from` and `details.to` bound the gap. */
export class OutputLostError extends DsecError {
  constructor(stream: string, from: number, to: number) {
    super("FailedPrecondition", `${to - from} bytes of ${stream} from offset ${from} on were not kept`, {
      hint: "raise outputCapBytes, or read with output() which shows gaps",
      details: { from, to },
    });
  }
}

/** The error for a reply of the server. `status` serves when the body is not one of ours. */
export function errorFromReply(status: number, body: string): DsecError {
  const wire = parseWire(body);
  if (wire === undefined) {
    return new DsecError(status === 404 ? "NotFound" : "Internal", `the server answered ${status} without a reason`, {
      hint: "is the URL that of a DSec apiserver?",
    });
  }
  return errorFromBody({ error: wire });
}

/** The error that a server describes. */
export function errorFromBody({ error }: ErrorBody): DsecError {
  const Class = CLASSES[error.kind] ?? DsecError;
  return new Class(error.kind, error.message, error);
}

type ErrorClass = new (kind: ErrorKind, message: string, options?: DsecErrorOptions) => DsecError;
const CLASSES: Readonly<Partial<Record<ErrorKind, ErrorClass>>> = {
  NotFound: NotFoundError,
  CommandNotFound: CommandStartError,
  CommandNotExecutable: CommandStartError,
  SandboxLost: SandboxLostError,
  NodeFull: NoRoomError,
  StorageFull: NoRoomError,
  Overloaded: NoRoomError,
  QuotaExceeded: NoRoomError,
};

function parseWire(body: string): ErrorBody["error"] | undefined {
  try {
    const { error } = JSON.parse(body) as Partial<ErrorBody>;
    return typeof error?.kind === "string" && typeof error.message === "string" ? error : undefined;
  } catch {
    return undefined;
  }
}

/** True when the server may have made what was asked for all the same. */
export function outcomeUnknown(error: unknown, signal: AbortSignal | undefined): boolean {
  if (signal?.aborted === true) return true;
  if (error instanceof TransportError) return error.details.refused !== true;
  return error instanceof DsecError && error.kind === "DeadlineExceeded";
}
