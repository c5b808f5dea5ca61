import type { ErrorBody } from "#api/index.ts";
import { asSandboxError, ERROR_KINDS, hasCode, SandboxError, toWire } from "#core/errors.ts";

/** Any thrown value as the API answers it. */
export function failureOf(error: unknown): {
  readonly status: number;
  readonly body: ErrorBody;
  readonly typed: SandboxError;
} {
  const typed = typedOf(error);
  const { kind, message, hint, details } = toWire(typed);
  const { status, retry } = ERROR_KINDS[kind];
  const body: ErrorBody = {
    error: {
      kind,
      message,
      retry,
      ...(hint === undefined ? {} : { hint }),
      ...(details === undefined ? {} : { details: mutable(details) }),
    },
  };
  return { status, body, typed };
}

/** The web framework's own refusals, in our kinds. */
function typedOf(error: unknown): SandboxError {
  if (hasCode(error, "FST_ERR_CTP_BODY_TOO_LARGE")) {
    return new SandboxError("TooLarge", "the body is too large", {
      cause: error,
      hint: "send long input through stdin or a file",
    });
  }
  if (hasCode(error, "FST_ERR_CTP_INVALID_MEDIA_TYPE")) {
    return new SandboxError("InvalidArgument", "the body has an unexpected type", {
      cause: error,
      hint: "send Content-Type: application/json",
    });
  }
  if (hasCode(error, "FST_ERR_BAD_URL")) {
    return new SandboxError("InvalidArgument", "the path is not percent-encoded", { cause: error });
  }
  if (isClientError(error)) {
    return new SandboxError("InvalidArgument", `the request cannot be read: ${error.message}`, { cause: error });
  }
  return asSandboxError(error);
}

function isClientError(error: unknown): error is Error {
  if (!(error instanceof Error) || error instanceof SandboxError || !("statusCode" in error)) return false;
  return typeof error.statusCode === "number" && error.statusCode >= 400 && error.statusCode < 500;
}

function mutable(details: SandboxError["details"]): NonNullable<ErrorBody["error"]["details"]> {
  return Object.fromEntries(
    Object.entries(details).map(([name, fact]) => [name, typeof fact === "object" ? [...fact] : fact]),
  );
}
